// The Messages API: `POST /v1/messages` and `/v1/messages/count_tokens`. Steps of a reply (see model_server.mjs) are in this
// dialect's own words, so this file passes them on as they are.

const ERROR_TYPES = {
  400: 'invalid_request_error', 401: 'authentication_error', 403: 'permission_error', 404: 'not_found_error',
  413: 'request_too_large', 429: 'rate_limit_error', 500: 'api_error', 529: 'overloaded_error',
};

export const anthropic = {
  route: (path) => /(?:^|\/)v1\/messages$/.test(path),
  side: (path, body) => (/(?:^|\/)v1\/messages\/count_tokens$/.test(path) ? { input_tokens: Math.ceil(body.length / 4) } : undefined),

  /** {messages: [{role, content: text | blocks}], tools, streaming, model} of a request. */
  read: (asked) => ({ messages: asked.messages ?? [], tools: asked.tools ?? [], streaming: asked.stream === true, model: asked.model }),
  callId: (run, serial, call) => `toolu_${run}_${serial}_${call}`,
  error: (status, message, run) => ({ type: 'error', error: { type: ERROR_TYPES[status] ?? 'api_error', message }, request_id: `req_${run}` }),

  whole({ id, model, blocks, stop }) {
    return {
      id: `msg_${id}`, type: 'message', role: 'assistant', model, content: blocks, stop_reason: stop, stop_sequence: null,
      usage: { input_tokens: 100, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 7 },
    };
  },

  /** The server-sent events of a reply as they are due: `begin`, one list for each step, `end`. */
  stream({ id, model, stop }) {
    const usage = { input_tokens: 100, cache_creation_input_tokens: 0, cache_read_input_tokens: 0, output_tokens: 1 };
    const event = (type, data) => ({ event: type, data: { type, ...data } });
    let index = -1;
    let deltas = 0;
    return {
      begin: () => [event('message_start', {
        message: { id: `msg_${id}`, type: 'message', role: 'assistant', model, content: [], stop_reason: null, stop_sequence: null, usage },
      })],
      step(step) {
        if (step.open) { index += 1; return [event('content_block_start', { index, content_block: step.open })]; }
        if (step.delta) { deltas += 1; return [event('content_block_delta', { index, delta: step.delta })]; }
        return [event('content_block_stop', { index })];
      },
      end: () => [
        event('message_delta', { delta: { stop_reason: stop, stop_sequence: null }, usage: { output_tokens: deltas } }),
        event('message_stop', {}),
      ],
    };
  },
};
