package control

import (
	"context"
	"errors"
	"slices"
	"time"

	"parallelsandbox/domain/box"
	"parallelsandbox/domain/fault"
)

func (c execution) operation(try int) string {
	return operation(c.who, c.Box, "exec", c.IdempotencyKey, try)
}

// once runs the command, or finds out how it ended when it ran before: in an earlier life of
// this process, in another one, or here and so long ago that its answer is gone.
func (c execution) once(ctx context.Context) (ExecResult, worth, error) {
	for try := 0; try < maxTries; {
		exec := c.operation(try)
		before, err := c.noted(ctx, c.Box, exec)
		if err != nil {
			return ExecResult{}, worth{}, err
		}
		if before.begun == nil {
			res, err := c.run(ctx, exec)
			if errors.Is(err, errNotedMeanwhile) {
				continue
			}
			return res, worth{keep: err == nil, bytes: len(res.Stdout) + len(res.Stderr)}, err
		}
		res, again, err := c.ended(ctx, exec, before)
		if !again {
			return res, worth{}, err
		}
		try++
	}
	return ExecResult{}, worth{}, errTries
}

// ended answers from the ledger. again says that the command never ran.
func (c execution) ended(ctx context.Context, exec string, before noted) (res ExecResult, again bool, err error) {
	command, ok := before.begun.(box.ExecStarted)
	if !ok || !c.isThat(command) {
		return res, false, errOtherCall
	}
	if before.end == nil {
		if before, err = c.elsewhere(ctx, exec, command); err != nil {
			return res, false, err
		}
	}
	switch end := before.end; end.Outcome {
	case box.Refused:
		return res, true, nil
	case box.Unknown:
		return res, false, c.endedMeanwhile(ctx, c.Box, fault.New(fault.OutcomeUnknown,
			"the command was started under this idempotencyKey, and how it ended is not known: %s. Look at its effects before running it again under a new key", end.Detail))
	default:
		return ExecResult{
			Result: Result{
				ExitCode: end.ExitCode, TimedOut: end.Outcome == box.TimedOut, Cancelled: end.Outcome == box.Cancelled, BgID: end.BgID,
				StdoutBytes: end.StdoutBytes, StderrBytes: end.StderrBytes, Duration: time.Duration(end.DurationMs) * time.Millisecond,
			},
			Step: end.Step, Repeated: true, Forgotten: true, Digest: end.Digest,
		}, false, nil
	}
}

// isThat compares what is recorded of a command; the note does not make another one.
func (c execution) isThat(e box.ExecStarted) bool {
	mine := c.announcement(e.Exec)
	return mine.Cmd == e.Cmd && mine.Cwd == e.Cwd && mine.TimeoutMs == e.TimeoutMs && mine.Background == e.Background && slices.Equal(mine.EnvNames, e.EnvNames)
}

// elsewhere waits for a command that another process runs. One of this process that is not
// over for the ledger and not under way either will not be heard of before a restart.
func (c execution) elsewhere(ctx context.Context, exec string, command box.ExecStarted) (noted, error) {
	unheard := fault.New(fault.OutcomeUnknown, "the command was started under this idempotencyKey, and has not been heard of since; look at its effects before running it again under a new key")
	if command.Replica == c.Replica {
		return noted{}, unheard
	}
	within := command.At.Add(c.timeout + time.Minute).Sub(c.Now())
	if _, err := c.await(ctx, c.Box, within, func(st box.State) bool { _, open := st.Open[exec]; return !open }); err != nil {
		switch {
		case ctx.Err() != nil:
			err = ctx.Err()
		case fault.KindOf(err) == fault.Timeout:
			err = unheard.Because(err)
		}
		return noted{}, err
	}
	before, err := c.noted(ctx, c.Box, exec)
	if err == nil && before.end == nil {
		err = unheard
	}
	return before, err
}
