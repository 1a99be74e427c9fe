// The chat-completions API, as many agents speak it: `POST …/chat/completions`, and the list of models. Thoughts travel as
// `reasoning_content`. A tool call is a first piece with id and name, then pieces of its arguments.

const FINISH = { end_turn: 'stop', tool_use: 'tool_calls', max_tokens: 'length', refusal: 'content_filter' };
const USAGE = {
  prompt_tokens: 100, completion_tokens: 7, total_tokens: 107,
  prompt_tokens_details: { cached_tokens: 0 }, completion_tokens_details: { reasoning_tokens: 0 },
};
const MODELS = ['interop-model', 'interop-model-2'];
const CREATED = 1_700_000_000;

/** Chat content (a text, or parts) as text blocks. */
const textBlocks = (content) => (typeof content === 'string' ? [{ type: 'text', text: content }]
  : (content ?? []).filter((part) => typeof part.text === 'string').map((part) => ({ type: 'text', text: part.text })));

export const chat = {
  route: (path) => path.endsWith('/chat/completions'),
  side: (path) => (path.endsWith('/models')
    ? { object: 'list', data: MODELS.map((id) => ({ id, object: 'model', created: CREATED, owned_by: 'interop', context_length: 200_000 })) } : undefined),

  read: (asked) => ({
    messages: (asked.messages ?? []).map((message) => (message.role === 'tool'
      ? { role: 'user', content: [{ type: 'tool_result', tool_use_id: message.tool_call_id, content: textBlocks(message.content) }] }
      : { role: message.role, content: textBlocks(message.content) })),
    tools: asked.tools ?? [], streaming: asked.stream === true, model: asked.model,
  }),
  callId: (run, serial, call) => `call_${run}_${serial}_${call}`,
  error: (status, message) => ({ error: { message, type: status < 500 ? 'invalid_request_error' : 'server_error', param: null, code: status === 401 ? 'invalid_api_key' : null } }),

  whole({ id, model, blocks, stop }) {
    const joined = (type, key) => blocks.filter((block) => block.type === type).map((block) => block[key]).join('');
    const calls = blocks.filter((block) => block.type === 'tool_use')
      .map((block) => ({ id: block.id, type: 'function', function: { name: block.name, arguments: JSON.stringify(block.input) } }));
    const thought = joined('thinking', 'thinking');
    const message = {
      role: 'assistant', content: joined('text', 'text') || null,
      ...(thought ? { reasoning_content: thought } : {}), ...(calls.length > 0 ? { tool_calls: calls } : {}),
    };
    return {
      id: `chatcmpl-${id}`, object: 'chat.completion', created: CREATED, model,
      choices: [{ index: 0, message, finish_reason: FINISH[stop] ?? 'stop' }], usage: USAGE,
    };
  },

  stream({ id, model, stop }) {
    const chunk = (delta, finish = null) => ({
      data: { id: `chatcmpl-${id}`, object: 'chat.completion.chunk', created: CREATED, model, choices: [{ index: 0, delta, finish_reason: finish }] },
    });
    let call = -1;
    return {
      begin: () => [chunk({ role: 'assistant', content: '' })],
      step({ open, delta }) {
        if (open?.type === 'tool_use') {
          call += 1;
          return [chunk({ tool_calls: [{ index: call, id: open.id, type: 'function', function: { name: open.name, arguments: '' } }] })];
        }
        switch (delta?.type) {
          case 'text_delta': return [chunk({ content: delta.text })];
          case 'thinking_delta': return [chunk({ reasoning_content: delta.thinking })];
          case 'input_json_delta': return [chunk({ tool_calls: [{ index: call, function: { arguments: delta.partial_json } }] })];
          default: return [];
        }
      },
      end: () => {
        const last = chunk({});
        return [chunk({}, FINISH[stop] ?? 'stop'), { data: { ...last.data, choices: [], usage: USAGE } }, { data: '[DONE]' }];
      },
    };
  },
};
