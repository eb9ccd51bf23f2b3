package grpcserver

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/evalfleet/evalfleet/pkg/rpcerr"
)

// IsWatch reports whether a method is a watch by its name, such as `/evalfleet.agent.v1.RunService/WatchRun`. A watch may
// last without end, and is resumed from its cursor, so that no stop waits for one.
func IsWatch(method string) bool {
	return strings.HasPrefix(method[strings.LastIndexByte(method, '/')+1:], "Watch")
}

// watchAgain is when a watch that a stop ended may be tried again.
const watchAgain = time.Second

var errStopping = errors.New("the server stops")

// UntilStopping ends a watch, whose context is ctx, by end as soon as stopping ends. The returned function is called with
// the result of the watch; of one that was ended so it makes the error that tells the client to watch again.
func UntilStopping(ctx, stopping context.Context, service string, end context.CancelCauseFunc) func(error) error {
	release := context.AfterFunc(stopping, func() { end(errStopping) })
	return func(err error) error {
		release()
		if err != nil && errors.Is(context.Cause(ctx), errStopping) {
			return rpcerr.ServiceUnavailable(service, watchAgain, "%s is stopping; watch again from the last cursor", service)
		}
		return err
	}
}
