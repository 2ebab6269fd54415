"""The engine room of `trainvitals diagnose`: gathers evidence and tells what was made of it."""
