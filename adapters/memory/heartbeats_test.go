package memory_test

import (
	"testing"

	"parallelsandbox/adapters/memory"
	"parallelsandbox/domain/policy"
	"parallelsandbox/domain/policy/heartbeattest"
)

func TestHeartbeats(t *testing.T) {
	heartbeattest.Run(t, func(*testing.T) (mine, theirs policy.Heartbeats) {
		h := new(memory.Heartbeats)
		return h, h
	})
}
