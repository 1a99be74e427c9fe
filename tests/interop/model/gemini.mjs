// The Gemini API: `POST …/models/NAME:generateContent`, `:streamGenerateContent`, `:countTokens`. A call is one part, never
// in pieces. A request for JSON gets the smallest object that fits its schema.

const FINISH = { max_tokens: 'MAX_TOKENS', refusal: 'SAFETY' };
const STATUS = { 400: 'INVALID_ARGUMENT', 401: 'UNAUTHENTICATED', 403: 'PERMISSION_DENIED', 429: 'RESOURCE_EXHAUSTED', 503: 'UNAVAILABLE' };
const USAGE = { promptTokenCount: 100, candidatesTokenCount: 7, totalTokenCount: 107, thoughtsTokenCount: 0 };
const METHOD = /\/([^/:]+):(generateContent|streamGenerateContent)$/;

/** The smallest value that a schema allows. */
function smallest(schema = {}) {
  if (schema.enum?.length > 0) return schema.enum[0];
  switch (String(schema.type).toLowerCase()) {
    case 'object': return Object.fromEntries(Object.entries(schema.properties ?? {}).map(([name, inner]) => [name, smallest(inner)]));
    case 'array': return [];
    case 'boolean': return false;
    case 'number': case 'integer': return schema.minimum ?? 1;
    default: return 'interop';
  }
}

/** A finished block as a part. */
function part(block) {
  if (block.type === 'thinking') return { text: block.thinking, thought: true };
  if (block.type === 'text') return { text: block.text };
  return { functionCall: { id: block.id, name: block.name, args: block.input }, thoughtSignature: 'c2lnbmF0dXJl' };
}

const body = ({ id, model, stop }, parts, last) => ({
  candidates: [{ index: 0, content: { role: 'model', parts }, ...(last ? { finishReason: FINISH[stop] ?? 'STOP' } : {}) }],
  modelVersion: model, responseId: `resp_${id}`, ...(last ? { usageMetadata: USAGE } : {}),
});

export const gemini = {
  route: (path) => METHOD.test(path),
  side: (path, text) => (/:countTokens$/.test(path) ? { totalTokens: Math.ceil(text.length / 4) } : undefined),

  read(asked, path) {
    const [, model, method] = METHOD.exec(path);
    const { responseMimeType, responseJsonSchema, responseSchema } = asked.generationConfig ?? {};
    return {
      messages: (asked.contents ?? []).map((content) => ({
        role: content.role === 'model' ? 'assistant' : 'user',
        content: (content.parts ?? []).map((one) => (one.functionResponse
          ? { type: 'tool_result', tool_use_id: one.functionResponse.id, content: JSON.stringify(one.functionResponse.response ?? '') } : { type: 'text', text: one.thought ? '' : one.text ?? '' })),
      })),
      tools: (asked.tools ?? []).flatMap((tool) => tool.functionDeclarations ?? []),
      streaming: method === 'streamGenerateContent', model,
      fixed: responseMimeType === 'application/json' ? JSON.stringify(smallest(responseJsonSchema ?? responseSchema)) : undefined,
    };
  },
  callId: (run, serial, call) => `call_${run}_${serial}_${call}`,
  error: (status, message) => ({ error: { code: status, message, status: STATUS[status] ?? 'INTERNAL' } }),

  whole: (reply) => body(reply, reply.blocks.map(part), true),

  stream(reply) {
    let call;
    return {
      begin: () => [],
      step({ open, delta, close }) {
        if (open) call = open.type === 'tool_use' ? { ...open, partial: '' } : undefined;
        if (close && call) return [{ data: body(reply, [part({ ...call, input: JSON.parse(call.partial || '{}') })]) }];
        switch (delta?.type) {
          case 'text_delta': return [{ data: body(reply, [{ text: delta.text }]) }];
          case 'thinking_delta': return [{ data: body(reply, [{ text: delta.thinking, thought: true }]) }];
          case 'input_json_delta': call.partial += delta.partial_json; return [];
          default: return [];
        }
      },
      end: () => [{ data: body(reply, [{ text: '' }], true) }],
    };
  },
};
