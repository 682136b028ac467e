"""Records a callable's device work and replays it."""
