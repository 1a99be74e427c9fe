"""An editor made of the official Python SDK: the same commands and events as ts_sdk.mjs, over stdin and stdout.

It owns the ACP connection to the agent and reports, in order, what the SDK handed to it; it decides nothing by itself.
The SDK is used with its defaults, as most editors built on it do.
"""

import asyncio
import json
import os
import sys

import acp
from acp.schema import AllowedOutcome, ClientCapabilities, DeniedOutcome, FileSystemCapabilities, Implementation


def say(event):
    sys.stdout.write(json.dumps(event) + "\n")
    sys.stdout.flush()


def plain(value):
    """What the SDK parsed, as the JSON it came from (an explicit null stays)."""
    if value is None:
        return {}
    return value.model_dump(mode="json", by_alias=True, exclude_unset=True)


def failure(error):
    return {"code": getattr(error, "code", None), "message": str(error), "data": getattr(error, "data", None)}


class Editor(acp.Client):
    def __init__(self):
        self.open = {}
        self.questions = 0

    async def session_update(self, session_id, update, **kwargs):
        say({"event": "update", "update": plain(update)})

    async def request_permission(self, session_id, tool_call, options, **kwargs):
        self.questions += 1
        tag = self.questions
        answer = asyncio.get_running_loop().create_future()
        self.open[tag] = answer
        request = {"sessionId": session_id, "toolCall": plain(tool_call), "options": [plain(option) for option in options]}
        say({"event": "ask", "tag": tag, "request": request})
        outcome = await answer
        if outcome["outcome"] == "selected":
            chosen = AllowedOutcome(outcome="selected", option_id=outcome["optionId"])
        else:
            chosen = DeniedOutcome(outcome="cancelled")
        return acp.RequestPermissionResponse(outcome=chosen)

    async def read_text_file(self, session_id, path, line=None, limit=None, **kwargs):
        with open(path, encoding="utf-8") as file:
            return acp.ReadTextFileResponse(content=file.read())

    async def write_text_file(self, session_id, path, content, **kwargs):
        with open(path, "w", encoding="utf-8") as file:
            file.write(content)
        return acp.WriteTextFileResponse()


async def commands():
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def main():
    editor = Editor()
    running = set()
    session_id = None

    async def report(event, work, **extra):
        try:
            say({"event": event, **extra, "result": plain(await work)})
        except Exception as error:  # whatever the SDK raises is what the check wants to see
            say({"event": event, **extra, "error": failure(error)})

    def start(work):
        task = asyncio.create_task(work)
        running.add(task)
        task.add_done_callback(running.discard)

    stream = commands()
    first = await anext(stream)
    argv = first["argv"]
    # The SDK hands on only a few variables by default; an editor passes the user's whole environment.
    async with acp.spawn_agent_process(editor, argv[0], *argv[1:], env=dict(os.environ), cwd=first["cwd"]) as (agent, process):
        await report(
            "opened",
            agent.initialize(
                protocol_version=acp.PROTOCOL_VERSION,
                client_info=Implementation(name="interop-py", version="1"),
                client_capabilities=ClientCapabilities(
                    fs=FileSystemCapabilities(read_text_file=True, write_text_file=True), terminal=False
                ),
            ),
        )
        async for command in stream:
            match command["op"]:
                case "session":
                    try:
                        session = await agent.new_session(cwd=command["cwd"], mcp_servers=[])
                        session_id = session.session_id
                        say({"event": "session", "result": plain(session)})
                    except Exception as error:
                        say({"event": "session", "error": failure(error)})
                case "mode":
                    await report("mode", agent.set_session_mode(session_id=session_id, mode_id=command["modeId"]))
                case "prompt":
                    text = acp.text_block(command["text"])
                    start(report("answer", agent.prompt(session_id=session_id, prompt=[text]), tag=command["tag"]))
                case "cancel":
                    await agent.cancel(session_id=session_id)
                case "reply":
                    waiting = editor.open.pop(command["tag"], None)
                    if waiting is not None and not waiting.done():
                        waiting.set_result(command["outcome"])
                case "close":
                    break
    say({"event": "exit", "code": process.returncode, "signal": None})


asyncio.run(main())
