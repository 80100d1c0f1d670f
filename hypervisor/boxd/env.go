package boxd

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"parallelsandbox/hypervisor/boxd/process"
	"parallelsandbox/hypervisor/boxd/protocol"
)

// envStep is the host's name for the command. Like the marker it cannot be overridden.
const envStep = "PSBX_STEP"

// environment is the box's own, then the secrets, then the request's; later ones win.
func (a *Agent) environment(q protocol.ExecRequest) ([]string, process.Marker, error) {
	env := map[string]string{
		"DISPLAY": ":99",
		"HOME":    "/root",
		"LANG":    "C.UTF-8",
		"PATH":    "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
	}
	a.mu.Lock()
	a.runs++
	run := fmt.Sprintf("%s-%d", a.boot, a.runs)
	maps.Copy(env, a.config.Env)
	a.mu.Unlock()
	if err := checkEnv(q.Env); err != nil {
		return nil, "", err
	}
	maps.Copy(env, q.Env)
	env[process.MarkerName] = run
	if q.Step != "" {
		env[envStep] = q.Step
	}
	list := make([]string, 0, len(env))
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list, process.Marker(run), nil
}

// checkEnv refuses what a process cannot be given. It never shows a value.
func checkEnv(env map[string]string) error {
	for k, v := range env {
		if k == "" || strings.ContainsAny(k, "=\x00") {
			return protocol.Errorf(protocol.Invalid, "%q cannot be the name of an environment variable", k)
		}
		if strings.ContainsRune(v, 0) {
			return protocol.Errorf(protocol.Invalid, "the environment variable %s holds a NUL byte", k)
		}
	}
	return nil
}

func memFile(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}
