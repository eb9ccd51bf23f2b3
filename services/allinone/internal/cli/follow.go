package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/resource"
	"github.com/evalfleet/evalfleet/pkg/retry"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/allinone/internal/progress"
)

// own follows an evaluation of this command to its end, keeps its logs in a folder unless that is empty, and shows the
// results. An interrupt cancels the evaluation.
func (s *session) own(ctx context.Context, eval *agentv1.Eval, logDir string) error {
	id := short(eval.GetName())
	s.app.note("%s · %s · %s · %d samples", id, eval.GetSpec().GetTask(), models(eval.GetSpec()), eval.GetProgress().GetTotal())
	logs := s.keepLogs(ctx, eval, logDir)
	defer logs.leave()
	began := time.Now()
	watched, stop := s.app.untilInterrupt(ctx)
	eval, err := s.follow(watched, eval, began)
	stop()
	if interrupted(watched) {
		return s.abandon(ctx, eval, began, logs)
	}
	if err != nil {
		s.app.note("the evaluation continues at the server; %s shows it", s.app.next("eval show %s", id))
		return err
	}
	if err := s.showEnd(ctx, eval, logs.finish(ctx, eval)); err != nil {
		return err
	}
	if eval.GetState() != agentv1.EvalState_EVAL_STATE_SUCCEEDED {
		return statusError{code: exitFailed}
	}
	return nil
}

// abandon cancels an evaluation that its owner has interrupted. Another interrupt leaves it at that.
func (s *session) abandon(ctx context.Context, eval *agentv1.Eval, began time.Time, logs *logKeeper) error {
	id := short(eval.GetName())
	s.app.note("cancelling %s; interrupt again to leave at once", id)
	watched, stop := s.app.untilInterrupt(ctx)
	err := again(watched, func() error {
		_, err := s.evals.CancelEval(watched, &agentv1.CancelEvalRequest{Name: eval.GetName(), Reason: "interrupted", RequestId: resource.NewID()})
		return err
	})
	if err == nil {
		eval, err = s.follow(watched, eval, began)
	}
	stop() // What follows ends by itself, except the writing of logs, which another interrupt ends.
	if interrupted(watched) {
		s.leave = true
		return errInterrupted
	}
	if err != nil {
		return err
	}
	if err := s.showEnd(ctx, eval, logs.finish(ctx, eval)); err != nil {
		return err
	}
	return errInterrupted
}

// showEnd shows an evaluation that has ended, and where its logs are.
func (s *session) showEnd(ctx context.Context, eval *agentv1.Eval, logs []string) error {
	if !s.app.json {
		s.app.note("")
		return s.showEval(ctx, eval, logs)
	}
	b, err := protojson.Marshal(eval)
	if err != nil {
		return err
	}
	line, err := json.Marshal(struct {
		Eval json.RawMessage `json:"eval"`
		Logs []string        `json:"logs,omitempty"`
	}{b, logs})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.app.Stdout, "%s\n", line)
	return err
}

// redraw is how often a live view moves its clock.
const redraw = time.Second

// follow watches an evaluation until it has ended and returns it as it was last seen. Its clock began before, where it
// is followed again.
func (s *session) follow(ctx context.Context, eval *agentv1.Eval, began time.Time) (*agentv1.Eval, error) {
	state := progress.NewState(eval, began)
	var view progress.View = progress.NewLines(s.app.Stderr)
	if width := s.app.StderrWidth(); s.app.draws(width) {
		size := func() (columns, rows int) { return s.app.StderrWidth(), s.app.StderrHeight() }
		view = progress.NewLive(s.app.Stderr, size, s.app.colors(width))
	}
	defer view.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said := make(chan *agentv1.WatchEvalResponse)
	watched := make(chan error, 1)
	go func() {
		watched <- s.watch(ctx, eval.GetName(), said)
	}()
	clock := time.NewTicker(redraw)
	defer clock.Stop()
	for {
		select {
		case r := <-said:
			state.Observe(r)
			if s.app.json {
				if err := s.app.emit(r); err != nil {
					return state.Eval(), err
				}
				continue
			}
		case err := <-watched:
			if err != nil {
				return state.Eval(), err
			}
			last, err := s.eval(ctx, eval.GetName())
			if err != nil {
				return state.Eval(), err
			}
			state.Observe(&agentv1.WatchEvalResponse{Update: &agentv1.WatchEvalResponse_Progress{Progress: last}})
			if !s.app.json {
				view.Show(state)
			}
			return last, nil
		case <-clock.C:
		}
		if !s.app.json {
			view.Show(state)
		}
	}
}

// watch sends the messages of a watch until the evaluation has ended. It reconnects after a broken connection and
// resumes the watch at its cursor.
func (s *session) watch(ctx context.Context, name string, said chan<- *agentv1.WatchEvalResponse) error {
	cursor := ""
	for {
		err := resume(ctx, func(heard func()) error {
			stream, err := s.evals.WatchEval(ctx, &agentv1.WatchEvalRequest{Name: name, Cursor: cursor, Progress: true, Content: true})
			if err != nil {
				return err
			}
			return receiveAll(stream, &cursor, heard, func(r *agentv1.WatchEvalResponse) error {
				select {
				case said <- r:
				case <-ctx.Done():
					return ctx.Err()
				}
				if r.GetProgress() != nil && ended(r.GetProgress()) {
					return io.EOF
				}
				return nil
			})
		})
		if err != nil {
			return err
		}
		e, err := s.eval(ctx, name)
		if err != nil || ended(e) {
			return err
		}
	}
}

// eval returns an evaluation as it is now, also where the server is just starting again.
func (s *session) eval(ctx context.Context, name string) (e *agentv1.Eval, err error) {
	err = again(ctx, func() (err error) {
		e, err = s.evals.GetEval(ctx, &agentv1.GetEvalRequest{Name: name, Content: true})
		return err
	})
	return e, err
}

// receiveAll passes the messages of a watch to take until the watch ends, and records the cursor of each. take ends it
// with io.EOF.
func receiveAll[R interface{ GetCursor() string }](stream interface{ Recv() (R, error) }, cursor *string, heard func(), take func(R) error) error {
	for {
		r, err := stream.Recv()
		if err == nil {
			heard()
			if r.GetCursor() != "" {
				*cursor = r.GetCursor()
			}
			err = take(r)
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Retries of calls to an unreachable server, which may be restarting.
const (
	firstAgain = 200 * time.Millisecond
	lastAgain  = time.Second
	againFor   = 30 * time.Second
)

// again calls f until it does not fail with UNAVAILABLE, for a while. An engine of sandboxes that does not answer is no
// server that is starting: the user starts it.
func again(ctx context.Context, f func() error) error {
	return resume(ctx, func(func()) error { return f() })
}

// resume is again for a watch, which calls heard with each message: every message restarts the time limit.
func resume(ctx context.Context, f func(heard func()) error) error {
	backoff := retry.Backoff{First: firstAgain, Max: lastAgain}
	for away := time.Now(); ; {
		began := time.Now()
		err := f(func() {
			away = time.Now()
			backoff.Reset()
		})
		if rpcerr.Code(err) != codes.Unavailable || rpcerr.Is(err, errorsv1.ErrorReason_ERROR_REASON_ENGINE_UNAVAILABLE) {
			return err
		}
		if time.Since(began) > againFor {
			away = time.Now() // It was there for a while.
			backoff.Reset()
		}
		if time.Since(away) > againFor {
			return err
		}
		if backoff.Wait(ctx) != nil {
			return err
		}
	}
}
