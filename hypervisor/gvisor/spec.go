package gvisor

import (
	"fmt"

	"parallelsandbox/hypervisor"
	"parallelsandbox/hypervisor/network"
)

const (
	socketName = "ctl.sock"
	boxdPath   = "/opt/boxd/boxd"
	runDir     = "/run/box"
)

// The parts of the OCI runtime spec we use.
type (
	ociSpec struct {
		Version  string     `json:"ociVersion"`
		Process  ociProcess `json:"process"`
		Root     ociRoot    `json:"root"`
		Hostname string     `json:"hostname"`
		Mounts   []ociMount `json:"mounts"`
		Linux    ociLinux   `json:"linux"`
	}
	ociProcess struct {
		User         map[string]int      `json:"user"`
		Args         []string            `json:"args"`
		Env          []string            `json:"env"`
		Cwd          string              `json:"cwd"`
		Capabilities map[string][]string `json:"capabilities"`
		Rlimits      []ociRlimit         `json:"rlimits"`
	}
	ociRlimit struct {
		Type string `json:"type"`
		Hard uint64 `json:"hard"`
		Soft uint64 `json:"soft"`
	}
	ociRoot struct {
		Path string `json:"path"`
	}
	ociMount struct {
		Destination string   `json:"destination"`
		Type        string   `json:"type"`
		Source      string   `json:"source"`
		Options     []string `json:"options,omitempty"`
	}
	ociLinux struct {
		CgroupsPath string         `json:"cgroupsPath,omitempty"`
		Resources   ociResources   `json:"resources"`
		Namespaces  []ociNamespace `json:"namespaces"`
	}
	ociNamespace struct {
		Type string `json:"type"`
		Path string `json:"path,omitempty"`
	}
	ociResources struct {
		Memory *ociMemory `json:"memory,omitempty"`
		CPU    *ociCPU    `json:"cpu,omitempty"`
	}
	ociMemory struct {
		Limit int64 `json:"limit"`
	}
	ociCPU struct {
		Quota  int64  `json:"quota"`
		Period uint64 `json:"period"`
	}
)

// capabilities are what root in a machine has. With CAP_SYS_RESOURCE root is exempt from
// the limit on processes: the agent needs that, since a Go program ends when it gets no
// thread, and keeps the capability from everything it starts. CAP_SYS_ADMIN, which exempts
// as well, is missing on purpose.
var capabilities = []string{
	"CAP_CHOWN", "CAP_DAC_OVERRIDE", "CAP_FSETID", "CAP_FOWNER", "CAP_MKNOD", "CAP_SETGID", "CAP_SETUID",
	"CAP_SETFCAP", "CAP_SETPCAP", "CAP_NET_BIND_SERVICE", "CAP_SYS_CHROOT", "CAP_KILL", "CAP_AUDIT_WRITE",
	"CAP_SYS_PTRACE", "CAP_SYS_RESOURCE",
}

func (d *Driver) oci(rec record, port network.Port) ociSpec {
	s := rec.Spec
	spec := baseSpec(s, d.dir.root(s.ID), rec.Programs.Boxd, d.dir.socketDir(s.ID))
	spec.Linux.CgroupsPath = cgroupOf(s.ID)
	spec.Linux.Namespaces = append(spec.Linux.Namespaces, ociNamespace{Type: "network", Path: port.Namespace})
	return spec
}

// baseSpec is a machine without a network.
func baseSpec(s hypervisor.Spec, root, boxd, socketDir string) ociSpec {
	spec := ociSpec{
		Version: "1.1.0",
		Process: ociProcess{
			User: map[string]int{"uid": 0, "gid": 0},
			Args: []string{boxdPath, "-dial", runDir + "/" + socketName},
			Env: []string{
				"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8",
			},
			Cwd:          "/",
			Capabilities: map[string][]string{"bounding": capabilities, "effective": capabilities, "permitted": capabilities},
			Rlimits:      []ociRlimit{{Type: "RLIMIT_NOFILE", Hard: 1 << 20, Soft: 1 << 16}},
		},
		Root:     ociRoot{Path: root},
		Hostname: hostname(s),
		Mounts:   mounts(s, boxd, socketDir),
		Linux:    ociLinux{Namespaces: []ociNamespace{{Type: "pid"}, {Type: "ipc"}, {Type: "uts"}, {Type: "mount"}}},
	}
	if s.Procs > 0 {
		// The pids cgroup would count the sandbox's own threads and end the machine.
		n := uint64(s.Procs)
		spec.Process.Rlimits = append(spec.Process.Rlimits, ociRlimit{Type: "RLIMIT_NPROC", Hard: n, Soft: n})
	}
	if s.MemoryMB > 0 {
		spec.Linux.Resources.Memory = &ociMemory{Limit: int64(s.MemoryMB) << 20}
	}
	if s.CPUs > 0 {
		const period = 100_000 // µs
		spec.Linux.Resources.CPU = &ociCPU{Quota: int64(s.CPUs * period), Period: period}
	}
	return spec
}

// mounts keeps /tmp and /dev/shm, which count as memory, to a part of the machine's: full,
// they must leave room for programs.
func mounts(s hypervisor.Spec, boxd, socketDir string) []ociMount {
	tmp := []string{"mode=1777", "nosuid", "nodev"}
	shm := []string{"mode=1777", "nosuid", "nodev", "noexec"}
	if s.MemoryMB > 0 {
		tmp = append(tmp, fmt.Sprintf("size=%dm", max(s.MemoryMB/4, 1)))
		shm = append(shm, fmt.Sprintf("size=%dm", max(s.MemoryMB/8, 1)))
	}
	return []ociMount{
		{Destination: "/proc", Type: "proc", Source: "proc"},
		{Destination: "/dev", Type: "tmpfs", Source: "tmpfs"},
		{Destination: "/dev/pts", Type: "devpts", Source: "devpts"},
		{Destination: "/dev/shm", Type: "tmpfs", Source: "shm", Options: shm},
		{Destination: "/sys", Type: "sysfs", Source: "sysfs", Options: []string{"nosuid", "noexec", "nodev", "ro"}},
		{Destination: "/tmp", Type: "tmpfs", Source: "tmpfs", Options: tmp},
		{Destination: boxdPath, Type: "bind", Source: boxd, Options: []string{"bind", "ro"}},
		{Destination: runDir, Type: "bind", Source: socketDir, Options: []string{"bind", "ro"}},
	}
}
