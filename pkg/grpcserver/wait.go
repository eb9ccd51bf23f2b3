package grpcserver

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Waits reports whether a method only waits for what happens elsewhere. Its name says so, as in
// `/evalfleet.agent.v1.RunService/WatchRun` or `…/WaitRun`. Such a call may last without end and can be repeated, so
// that a stop ends it at once.
func Waits(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	return strings.HasPrefix(name, "Watch") || strings.HasPrefix(name, "Wait")
}

// waitAgain is when a call that a stop ended may be made again.
const waitAgain = time.Second

var errStopping = errors.New("the server stops")

// UntilStopping calls end, which must end ctx, the context of a call, as soon as stopping ends. The returned function
// takes the error of the call, or nil, when the call is over. If stopping has ended the call, it returns UNAVAILABLE
// (SERVICE_UNAVAILABLE) in place of the error. It may be called more than once.
func UntilStopping(ctx, stopping context.Context, service string, end context.CancelCauseFunc) func(error) error {
	release := context.AfterFunc(stopping, func() { end(errStopping) })
	return func(err error) error {
		release()
		if err == nil || !errors.Is(context.Cause(ctx), errStopping) {
			return err
		}
		return rpcerr.ServiceUnavailable(service, waitAgain,
			"%s is stopping; wait again, a watch from its last cursor", service)
	}
}

func sameError(err error) error { return err }
