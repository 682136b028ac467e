"""Running a model: nine rooms, each importing only from those before it."""
