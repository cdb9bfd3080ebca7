"""The tools of ``benchmarks/turns.py`` as Callboard's own."""

import turn_work

from callboard import tool

echo = tool(turn_work.echo)
nap = tool(turn_work.nap)
burn = tool(turn_work.burn)
