package gvisor

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// firstToDie is the oom_score_adj of what a machine can lose.
const firstToDie = "1000"

// exposePrograms makes the kernel end the machine's programs, and not the sandbox or the
// agent, when the machine is out of memory. Left alone it goes by resident memory, and most
// of what a program of a sandbox holds counts for no process.
//
// Each address space in the sandbox is a child process of it, copied from a first one and
// inheriting its score, so raising all but the agent's once, before the agent is asked to
// run anything, is enough. Raising, unlike lowering, needs no privilege.
func exposePrograms(sandbox int, boxd string) error {
	info, err := os.Stat(boxd)
	if err != nil {
		return err
	}
	inode := fmt.Sprintf(" %d ", info.Sys().(*syscall.Stat_t).Ino)
	children, err := childrenOf(sandbox)
	if err != nil {
		return err
	}
	agent := false
	for _, pid := range children {
		maps, err := os.ReadFile("/proc/" + pid + "/maps")
		if gone(err) {
			continue
		}
		if err != nil {
			return err
		}
		if !agent && strings.Contains(string(maps), inode) {
			agent = true // the oldest that runs the agent's binary
			continue
		}
		if err := os.WriteFile("/proc/"+pid+"/oom_score_adj", []byte(firstToDie), 0); err != nil && !gone(err) {
			return err
		}
	}
	return nil
}

// childrenOf lists a process's children, the oldest first for each of its threads.
func childrenOf(pid int) ([]string, error) {
	lists, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", pid))
	if err != nil {
		return nil, err
	}
	var children []string
	for _, list := range lists {
		data, err := os.ReadFile(list)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		children = append(children, strings.Fields(string(data))...)
	}
	return children, nil
}

// gone reports that a process ended while its files were read.
func gone(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ESRCH)
}
