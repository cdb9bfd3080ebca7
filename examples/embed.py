"""Embed Callboard: a private system, one conversation, one question. ``python examples/embed.py [CONFIG] [QUESTION]``

Without a configuration file it uses the environment's endpoint, else the embedded model.
"""

import sys

import callboard


def main(config: str | None = None, question: str = "What is 17 * 23?") -> int:
    """Ask the question, show what happens, and give the exit code."""
    with callboard.connect(config=config, private=True) as system:
        conversation = system.conversation(user="ann", team="red")
        for event in conversation.ask(question, deadline_s=300):
            match event.type:
                case "text_delta":
                    print(event.text, end="", flush=True)
                case "tool_call_started":
                    print(f"> {event.tool} {event.arguments}", file=sys.stderr)
                case "tool_call_finished" if event.is_error:
                    print(f"! {event.tool}: {event.outcome}", file=sys.stderr)
                case "turn_answered":
                    print()
                    return 0
                case "turn_failed":
                    print(f"failed: {event.reason}: {event.message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
