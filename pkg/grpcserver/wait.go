package grpcserver

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// Waits reports whether a method waits for what happens elsewhere, by its name, such as
// `/evalfleet.agent.v1.RunService/WatchRun` or `…/WaitRun`. Such a call may take long, does nothing itself and can be made
// again, so that no stop waits for it.
func Waits(method string) bool {
	name := method[strings.LastIndexByte(method, '/')+1:]
	return strings.HasPrefix(name, "Watch") || strings.HasPrefix(name, "Wait")
}

// waitAgain is when a call that a stop ended may be made again.
const waitAgain = time.Second

var errStopping = errors.New("the server stops")

// UntilStopping ends a call that [Waits], whose context is ctx, by end as soon as stopping ends. The returned function is
// called with the error of the call, or nil; of one that was ended so it makes the error that tells the client to come
// again.
func UntilStopping(ctx, stopping context.Context, service string, end context.CancelCauseFunc) func(error) error {
	release := context.AfterFunc(stopping, func() { end(errStopping) })
	return func(err error) error {
		release()
		if err != nil && errors.Is(context.Cause(ctx), errStopping) {
			return rpcerr.ServiceUnavailable(service, waitAgain, "%s is stopping; wait again, a watch from its last cursor", service)
		}
		return err
	}
}
