#!/bin/sh
# An agent that speaks ACP, for tests: it does what the text of a prompt says, and leaves its process id in the file
# `agent.pid` of its directory. It never announces a call, and says nothing of a call that was refused.

echo $$ >> agent.pid
prompt=
open=0
n=0

say() { printf '{"jsonrpc":"2.0",%s}\n' "$1"; }
update() { say '"method":"session/update","params":{"sessionId":"'"$session"'","update":{'"$1"'}}'; }
text() { update '"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"'"$1"'"}'; }
ask() {
  open=$((open + 1))
  say '"id":'"$1"',"method":"session/request_permission","params":{"sessionId":"'"$session"'","toolCall":{"toolCallId":"call-'"$1"'","title":"touch file-'"$1"'","kind":"execute"},"options":[{"optionId":"yes","name":"Allow","kind":"allow_once"},{"optionId":"no","name":"Reject","kind":"reject_once"}]}'
}
end() {
  say '"id":'"$prompt"',"result":{"stopReason":"'"$1"'"}'
  prompt=
  open=0
}

while IFS= read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"method":"initialize"'*)
      say '"id":'"$id"',"result":{"protocolVersion":1,"agentCapabilities":{"loadSession":true},"agentInfo":{"name":"fake","version":"1"},"authMethods":[]}' ;;
    *'"method":"session/new"'*)
      n=$((n + 1))
      say '"id":'"$id"',"result":{"sessionId":"session-'"$$-$n"'"}' ;;
    *'"method":"session/load"'*)
      session=$(printf '%s' "$line" | sed -n 's/.*"sessionId":"\([^"]*\)".*/\1/p')
      text 'from before'
      say '"id":'"$id"',"result":{}' ;;
    *'"method":"session/prompt"'*)
      prompt=$id
      session=$(printf '%s' "$line" | sed -n 's/.*"sessionId":"\([^"]*\)".*/\1/p')
      case "$line" in
        *'"text":"die"'*)
          text 'I begin.'
          update '"sessionUpdate":"tool_call","toolCallId":"last","title":"die"'
          echo 'out of memory in the fake' >&2
          kill -9 $$ ;;
        *'"text":"ask"'*) ask 0 ;;
        *'"text":"ask twice"'*) ask 0; ask 1 ;;
        *'"text":"hang"'*) text 'Here I stay.' ;;
        *'"text":"deaf"'*)
          text 'I do not listen.'
          trap '' TERM
          exec sleep 300 ;;
        *) text 'You are welcome.'; end end_turn ;;
      esac ;;
    *'"method":"session/cancel"'*) [ -n "$prompt" ] && end cancelled ;;
    *'"result"'*)
      case "$line" in
        *'"optionId":"yes"'*)
          : > "file-$id"
          update '"sessionUpdate":"tool_call_update","toolCallId":"call-'"$id"'","status":"completed"' ;;
      esac
      open=$((open - 1))
      [ "$open" = 0 ] && [ -n "$prompt" ] && end end_turn ;;
  esac
done
