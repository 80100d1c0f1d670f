package host_test

import (
	"testing"
	"time"

	"parallelsandbox/domain/decider/decidertest"
	"parallelsandbox/domain/fault"
	"parallelsandbox/domain/host"
)

func TestJoining(t *testing.T) {
	now, later := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), time.Date(2026, 1, 2, 4, 0, 0, 0, time.UTC)
	join := func(driver string, cpus, memory int, at time.Time) host.Join {
		return host.Join{Host: "h1", Driver: driver, CPUs: cpus, MemoryMB: memory, At: at}
	}
	joined := host.Joined{Host: "h1", Driver: "gvisor", CPUs: 4, MemoryMB: 8192, At: now}
	unsound := fault.New(fault.Invalid, "a host joins with a name, at least one CPU and some memory")
	decidertest.Run(t, host.Decider, host.Events, []decidertest.Case[host.Command, host.Event]{
		{Rule: "a host joins with its room", When: join("gvisor", 4, 8192, now), Then: []host.Event{joined}},
		{Rule: "joining as before is quiet", Given: []host.Event{joined}, When: join("gvisor", 4, 8192, later)},
		{Rule: "other room is a new fact", Given: []host.Event{joined}, When: join("gvisor", 8, 8192, later),
			Then: []host.Event{host.Joined{Host: "h1", Driver: "gvisor", CPUs: 8, MemoryMB: 8192, At: later}}},
		{Rule: "less memory too", Given: []host.Event{joined}, When: join("gvisor", 4, 4096, later),
			Then: []host.Event{host.Joined{Host: "h1", Driver: "gvisor", CPUs: 4, MemoryMB: 4096, At: later}}},
		{Rule: "another driver too", Given: []host.Event{joined}, When: join("fake", 4, 8192, later),
			Then: []host.Event{host.Joined{Host: "h1", Driver: "fake", CPUs: 4, MemoryMB: 8192, At: later}}},
		{Rule: "a host has a name", When: host.Join{CPUs: 1, MemoryMB: 1}, Err: unsound},
		{Rule: "a host has a CPU", When: host.Join{Host: "h1", MemoryMB: 1}, Err: unsound},
		{Rule: "a host has memory", When: host.Join{Host: "h1", CPUs: 1}, Err: unsound},
	})
}
