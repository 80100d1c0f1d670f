package mcp

import (
	"context"
	"errors"
	"log/slog"
	"net/http"

	"github.com/mark3labs/mcp-go/mcp"

	"parallelsandbox/domain/fault"
)

// failure is what a refused caller reads, from a tool and from the door alike.
type failure struct {
	Error     string `json:"error"`
	Code      string `json:"code"`
	Retryable bool   `json:"retryable"`
}

func failureOf(err error) failure {
	kind := fault.KindOf(err)
	return failure{Error: fault.Sentence(err), Code: string(kind), Retryable: kind.Retryable()}
}

// refusals says how each kind is told here: the HTTP status where a request is refused
// before the protocol begins, and how loud it is in the log. Inside the protocol every
// kind is the result of a tool; JSON-RPC errors are for faults of the protocol.
var refusals = map[fault.Kind]struct {
	status int
	level  slog.Level
}{
	fault.Invalid:          {http.StatusBadRequest, slog.LevelDebug},
	fault.Unauthenticated:  {http.StatusUnauthorized, slog.LevelDebug},
	fault.NotFound:         {http.StatusNotFound, slog.LevelDebug},
	fault.Locked:           {http.StatusLocked, slog.LevelDebug},
	fault.Interrupted:      {http.StatusGone, slog.LevelInfo},
	fault.Terminated:       {http.StatusGone, slog.LevelDebug},
	fault.PlanLimit:        {http.StatusTooManyRequests, slog.LevelDebug},
	fault.CreditsExhausted: {http.StatusPaymentRequired, slog.LevelDebug},
	fault.NoCapacity:       {http.StatusServiceUnavailable, slog.LevelWarn},
	fault.Conflict:         {http.StatusConflict, slog.LevelDebug},
	fault.TooLarge:         {http.StatusRequestEntityTooLarge, slog.LevelDebug},
	fault.Timeout:          {http.StatusGatewayTimeout, slog.LevelInfo},
	fault.OutcomeUnknown:   {http.StatusBadGateway, slog.LevelWarn},
	fault.Unavailable:      {http.StatusServiceUnavailable, slog.LevelWarn},
	fault.Internal:         {http.StatusInternalServerError, slog.LevelError},
}

var (
	errRestarting = fault.New(fault.Unavailable, "the service is being restarted; try again in a few seconds")
	errCancelled  = fault.New(fault.OutcomeUnknown, "the call was cancelled before it was done; sandbox_status says what was done until then")
	errCutOff     = fault.New(fault.OutcomeUnknown, "the service was restarted, or the connection was away for too long, so the answer of this call is lost; sandbox_status says what was done, look before repeating it. A call that had an idempotencyKey can be repeated unchanged")
)

// fail turns an error of a tool into its result. There is no structuredContent: the
// declared output schema is that of a success, and clients hold results against it.
func fail(ctx context.Context, log *slog.Logger, tool string, err error) *mcp.CallToolResult {
	if errors.Is(err, context.Canceled) && ctx.Err() != nil {
		err = errCancelled.Because(err)
	}
	log.Log(ctx, refusals[fault.KindOf(err)].level, "tool refused", "tool", tool, "code", fault.KindOf(err), "err", err)
	return &mcp.CallToolResult{IsError: true, Content: []mcp.Content{mcp.NewTextContent(text(failureOf(err)))}}
}
