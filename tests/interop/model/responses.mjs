// The Responses API: `POST …/responses`. A tool call whose input is a JSON string is a custom (free-form) call, any other a
// function call; its name may carry a namespace (`namespace/name`).

const USAGE = {
  input_tokens: 100, input_tokens_details: { cached_tokens: 0 }, output_tokens: 7, output_tokens_details: { reasoning_tokens: 0 }, total_tokens: 107,
};

const texts = (content) => (typeof content === 'string' ? [{ type: 'text', text: content }]
  : (content ?? []).filter((part) => typeof part.text === 'string').map((part) => ({ type: 'text', text: part.text })));

/** One output item of a finished block. */
function item(block, id, index) {
  if (block.type === 'thinking') return { type: 'reasoning', id: `rs_${id}_${index}`, summary: [{ type: 'summary_text', text: block.thinking }], encrypted_content: null };
  if (block.type === 'text') {
    return { type: 'message', id: `msg_${id}_${index}`, role: 'assistant', status: 'completed', content: [{ type: 'output_text', text: block.text, annotations: [] }] };
  }
  const called = { call_id: block.id, status: 'completed' };
  if (typeof block.input === 'string') return { type: 'custom_tool_call', id: `ctc_${id}_${index}`, name: block.name, input: block.input, ...called };
  const [, namespace, name] = /^(?:(.*)\/)?(.*)$/.exec(block.name);
  return { type: 'function_call', id: `fc_${id}_${index}`, ...(namespace ? { namespace } : {}), name, arguments: JSON.stringify(block.input), ...called };
}

export const responses = {
  route: (path) => path.endsWith('/responses'),
  side: () => undefined,

  read(asked) {
    const input = typeof asked.input === 'string' ? [{ role: 'user', content: asked.input }] : (asked.input ?? []);
    const messages = [];
    for (const one of input) {
      if (/_call_output$/.test(one.type ?? '')) messages.push({ role: 'user', content: [{ type: 'tool_result', tool_use_id: one.call_id, content: typeof one.output === 'string' ? one.output : JSON.stringify(one.output ?? '') }] });
      else if (one.role === 'user') messages.push({ role: 'user', content: texts(one.content) });
      // What the model said in one reply is several items here.
      else if (one.role !== 'system' && one.role !== 'developer' && messages.at(-1)?.role !== 'assistant') messages.push({ role: 'assistant', content: [] });
    }
    return { messages, tools: asked.tools ?? [], streaming: asked.stream === true, model: asked.model };
  },
  callId: (run, serial, call) => `call_${run}_${serial}_${call}`,
  error: (status, message) => ({ error: { message, type: status < 500 ? 'invalid_request_error' : 'server_error', param: null, code: status === 401 ? 'invalid_api_key' : null } }),

  whole: ({ id, model, blocks }) => ({ ...frame(id, model), status: 'completed', output: blocks.map((block, index) => item(block, id, index)), usage: USAGE }),

  stream({ id, model }) {
    const output = [];
    let sequence = 0;
    let block;
    const event = (type, data) => { sequence += 1; return { event: type, data: { type, sequence_number: sequence - 1, ...data } }; };
    const at = () => ({ item_id: item({ ...block, input: block.input ?? {} }, id, output.length).id, output_index: output.length });
    return {
      begin: () => [event('response.created', { response: frame(id, model) }), event('response.in_progress', { response: frame(id, model) })],
      step({ open, delta }) {
        if (open) {
          block = { ...open, partial: '' };
          // Whether a call is free-form shows only when its input is there: it is told as a whole then.
          if (open.type === 'tool_use') return [];
          const whole = item(block, id, output.length);
          if (open.type === 'thinking') {
            return [
              event('response.output_item.added', { output_index: output.length, item: { ...whole, summary: [] } }),
              event('response.reasoning_summary_part.added', { ...at(), summary_index: 0, part: { type: 'summary_text', text: '' } }),
            ];
          }
          return [
            event('response.output_item.added', { output_index: output.length, item: { ...whole, status: 'in_progress', content: [] } }),
            event('response.content_part.added', { ...at(), content_index: 0, part: { type: 'output_text', text: '', annotations: [] } }),
          ];
        }
        switch (delta?.type) {
          case 'text_delta': block.text += delta.text; return [event('response.output_text.delta', { ...at(), content_index: 0, delta: delta.text })];
          case 'thinking_delta': block.thinking += delta.thinking; return [event('response.reasoning_summary_text.delta', { ...at(), summary_index: 0, delta: delta.thinking })];
          case 'input_json_delta': block.partial += delta.partial_json; return [];
          case 'signature_delta': return [];
          default: break;
        }
        if (block.type === 'tool_use') block.input = JSON.parse(block.partial || '{}');
        const whole = item(block, id, output.length);
        const place = { item_id: whole.id, output_index: output.length };
        const before = {
          message: () => [
            event('response.output_text.done', { ...place, content_index: 0, text: block.text }),
            event('response.content_part.done', { ...place, content_index: 0, part: whole.content[0] }),
          ],
          reasoning: () => [
            event('response.reasoning_summary_text.done', { ...place, summary_index: 0, text: block.thinking }),
            event('response.reasoning_summary_part.done', { ...place, summary_index: 0, part: whole.summary[0] }),
          ],
          function_call: () => [
            event('response.output_item.added', { output_index: place.output_index, item: { ...whole, arguments: '', status: 'in_progress' } }),
            event('response.function_call_arguments.delta', { ...place, delta: whole.arguments }),
            event('response.function_call_arguments.done', { ...place, arguments: whole.arguments }),
          ],
          custom_tool_call: () => [
            event('response.output_item.added', { output_index: place.output_index, item: { ...whole, input: '', status: 'in_progress' } }),
            event('response.custom_tool_call_input.delta', { ...place, delta: whole.input }),
            event('response.custom_tool_call_input.done', { ...place, input: whole.input }),
          ],
        };
        const events = [...before[whole.type](), event('response.output_item.done', { output_index: place.output_index, item: whole })];
        output.push(whole);
        return events;
      },
      end: () => [event('response.completed', { response: { ...frame(id, model), status: 'completed', output, usage: USAGE } })],
    };
  },
};

function frame(id, model) {
  return {
    id: `resp_${id}`, object: 'response', created_at: 1_700_000_000, status: 'in_progress', model, output: [], parallel_tool_calls: true,
    tool_choice: 'auto', tools: [], metadata: {}, error: null, incomplete_details: null, instructions: null,
  };
}
