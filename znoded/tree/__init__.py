"""The replicated state machine: znodes, sessions, ACLs, quotas; apply(command) gives a reply and events."""
