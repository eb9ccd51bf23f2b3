package provider

import (
	"cmp"
	"context"
)

type clientID struct{}

// WithClientID returns the context of a call whose client was given this id for it.
func WithClientID(ctx context.Context, id string) context.Context {
	return context.WithValue(ctx, clientID{}, id)
}

// LogID is the id of a call in lines of the log: its key, or else the id that its client was given.
func (o Origin) LogID(ctx context.Context) string {
	given, _ := ctx.Value(clientID{}).(string)
	return cmp.Or(o.RequestID, given)
}
