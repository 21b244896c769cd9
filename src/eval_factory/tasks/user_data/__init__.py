"""What has to stand under `data_path` for tasks whose data a user brings."""
