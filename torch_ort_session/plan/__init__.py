"""When and where a graph runs under one signature: steps, static values, regions, memory."""
