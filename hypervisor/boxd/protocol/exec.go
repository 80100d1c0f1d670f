package protocol

import "time"

// MaxExecBody bounds the JSON of one exec request.
const MaxExecBody = 16 << 20

// ExecRequest runs one command with bash -c. Its answer is a stream of frames.
type ExecRequest struct {
	Step string `json:"step,omitempty"` // given to the command as PSBX_STEP
	Cmd  string `json:"cmd"`
	Cwd  string `json:"cwd,omitempty"` // relative to the work directory, or absolute beneath it
	// Env is added to the box's own environment and wins over it.
	Env map[string]string `json:"env,omitempty"`
	// TimeoutMs ends a foreground command and its whole process tree; 0 means never.
	TimeoutMs int64 `json:"timeoutMs,omitempty"`
	// Background answers with a Started frame as soon as the command runs; its output
	// goes to .sbx/<bgId>.log in the work directory and its exit code to .sbx/<bgId>.exit.
	Background bool `json:"background,omitempty"`
	// StdoutLimit and StderrLimit are bytes sent for each stream: the first half and the
	// last half of what a longer stream wrote. 0 means all of it.
	StdoutLimit int64 `json:"stdoutLimit,omitempty"`
	StderrLimit int64 `json:"stderrLimit,omitempty"`
	// HeartbeatMs is the longest silence on the answer; 0 means DefaultHeartbeat.
	HeartbeatMs int64 `json:"heartbeatMs,omitempty"`
}

// DefaultHeartbeat is the longest silence of a streamed answer unless asked otherwise.
const DefaultHeartbeat = 15 * time.Second

// Count is what became of one output stream.
type Count struct {
	Seen int64 `json:"seen"` // bytes the command wrote
	Kept int64 `json:"kept"` // bytes sent; the rest is the gap between two offsets
}

// Exit is how a foreground command ended: the last frame of its answer.
type Exit struct {
	Code       int    `json:"exitCode"` // 128+n when signal n ended it
	Signal     string `json:"signal,omitempty"`
	TimedOut   bool   `json:"timedOut,omitempty"`
	DurationMs int64  `json:"durationMs"`
	Stdout     Count  `json:"stdout"`
	Stderr     Count  `json:"stderr"`
	Truncated  bool   `json:"truncated,omitempty"`
}

// Background is one background process boxd started since the box booted.
type Background struct {
	ID        string    `json:"bgId"`
	Cmd       string    `json:"cmd"` // its beginning
	PID       int       `json:"pid"`
	Log       string    `json:"log"` // path of the output, relative to the work directory
	Running   bool      `json:"running"`
	ExitCode  *int      `json:"exitCode,omitempty"`
	StartedAt time.Time `json:"startedAt"`
}

// KillRequest ends a background process with everything it started.
type KillRequest struct {
	ID string `json:"bgId"`
}
