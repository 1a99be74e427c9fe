"""A host made of an official Python SDK: the same commands and events as ts_sdk.mjs, over stdin and stdout.

    python py_sdk.py claude_agent_sdk | claude_code_sdk

The older one has no option for the program: it takes the `claude` that it finds first in PATH. Messages are told in the
shape they have on the wire, as far as the SDK keeps it.
"""

import asyncio
import dataclasses
import importlib
import json
import os
import sys

sdk = importlib.import_module(sys.argv[1])
types = importlib.import_module(sys.argv[1] + ".types")
OLD = sys.argv[1] == "claude_code_sdk"
BLOCKS = {"TextBlock": "text", "ThinkingBlock": "thinking", "ToolUseBlock": "tool_use", "ToolResultBlock": "tool_result"}


def say(event):
    sys.stdout.write(json.dumps(event, default=str) + "\n")
    sys.stdout.flush()


def block(value):
    name = type(value).__name__
    return {"type": BLOCKS.get(name, name), **dataclasses.asdict(value)} if dataclasses.is_dataclass(value) else value


def plain(message):
    name = type(message).__name__
    match name:
        case "AssistantMessage" | "UserMessage":
            content = message.content if isinstance(message.content, str) else [block(one) for one in message.content]
            parent = getattr(message, "parent_tool_use_id", None)
            return {"type": name.removesuffix("Message").lower(), "message": {"content": content}, "parent_tool_use_id": parent}
        case "ResultMessage":
            return {"type": "result", **dataclasses.asdict(message)}
        case "StreamEvent":
            return {"type": "stream_event", "event": message.event}
        case _ if isinstance(message, types.SystemMessage):
            return {"type": "system", "subtype": message.subtype, **message.data}
        case _:
            return {"type": name}


class Host:
    def __init__(self):
        self.open = {}
        self.tags = 0

    async def put(self, event):
        """Puts a question to the check; returns its answer."""
        self.tags += 1
        tag = self.tags
        answer = asyncio.get_running_loop().create_future()
        self.open[tag] = answer
        say({**event, "tag": tag})
        try:
            return await answer
        except asyncio.CancelledError:
            say({"event": "withdrawn", "tag": tag})
            raise

    def options(self, wanted):
        given = {"cwd": wanted["cwd"]}
        if not OLD:
            given["cli_path"] = os.environ["CLAUDE_UNDER_TEST"]
        if wanted.get("callback"):

            async def can_use_tool(name, tool_input, context):
                event = {"event": "ask", "tool": name, "input": tool_input, "call": getattr(context, "tool_use_id", None)}
                answer = await self.put({**event, "suggestions": [block(one) for one in context.suggestions]})
                if answer["behavior"] == "allow":
                    return sdk.PermissionResultAllow(updated_input=answer.get("updatedInput"))
                return sdk.PermissionResultDeny(message=answer["message"], interrupt=answer.get("interrupt", False))

            given["can_use_tool"] = can_use_tool
        if wanted.get("hooks"):

            def hook(name):
                async def run(hook_input, tool_use_id, context):
                    return await self.put({"event": "hook", "name": name, "input": hook_input})

                return [sdk.HookMatcher(hooks=[run])]

            given["hooks"] = {name: hook(name) for name in wanted["hooks"]}
        if wanted.get("calc"):

            @sdk.tool("add", "Adds two numbers", {"a": float, "b": float})
            async def add(arguments):
                say({"event": "called", "arguments": arguments})
                return {"content": [{"type": "text", "text": f"The sum is {arguments['a'] + arguments['b']:g}."}]}

            given["mcp_servers"] = {"calc": sdk.create_sdk_mcp_server("calc", "1.0.0", [add])}
        for ours, theirs in (("model", "model"), ("mode", "permission_mode"), ("resume", "resume"), ("allowed", "allowed_tools")):
            if wanted.get(ours):
                given[theirs] = wanted[ours]
        if wanted.get("partial"):
            given["include_partial_messages"] = True
        if wanted.get("schema"):
            given["output_format"] = {"type": "json_schema", "schema": wanted["schema"]}
        return (sdk.ClaudeCodeOptions if OLD else sdk.ClaudeAgentOptions)(**given)


async def pump(messages):
    try:
        async for message in messages:
            say({"event": "message", "message": plain(message)})
        say({"event": "ended"})
    except Exception as error:  # whatever the SDK raises is what the check wants to see
        say({"event": "ended", "error": f"{type(error).__name__}: {error}"})


async def control(tag, work):
    try:
        await work
        say({"event": "did", "tag": tag})
    except Exception as error:
        say({"event": "did", "tag": tag, "error": f"{type(error).__name__}: {error}"})


async def commands():
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def main():
    host = Host()
    running = set()
    client = None
    reading = None

    def start(work):
        task = asyncio.create_task(work)
        running.add(task)
        task.add_done_callback(running.discard)
        return task

    async for command in commands():
        match command["op"]:
            case "once":
                reading = start(pump(sdk.query(prompt=command["text"], options=host.options(command["options"]))))
            case "open":
                client = sdk.ClaudeSDKClient(options=host.options(command["options"]))
                try:
                    await client.connect()
                except Exception as error:
                    say({"event": "ended", "error": f"{type(error).__name__}: {error}"})
                    continue
                reading = start(pump(client.receive_messages()))
                say({"event": "opened"})
            case "prompt":
                await client.query(command["text"])
            case "interrupt":
                start(control(command["tag"], client.interrupt()))
            case "model":
                start(control(command["tag"], client.set_model(command["value"])))
            case "mode":
                start(control(command["tag"], client.set_permission_mode(command["value"])))
            case "reply":
                waiting = host.open.pop(command["tag"], None)
                if waiting is not None and not waiting.done():
                    waiting.set_result(command["answer"])
            case "close":
                break
    if client is not None:
        # The SDK's own way to end a conversation; its reader ends with it.
        await client.disconnect()
        reading = None
    if reading is not None:
        await reading


asyncio.run(main())
