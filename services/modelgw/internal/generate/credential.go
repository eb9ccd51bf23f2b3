package generate

import (
	"bytes"
	"context"
	"log/slog"
	"net/http"

	"github.com/evalfleet/evalfleet/pkg/chat"
	modelv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/model/v1"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Credential makes each attempt with one of the account's credentials: the conversation's own, or another one while
// that rests after a failure. Metrics and budgets are those of the account. A call in a batch has the account's first
// credential, whose batch it is.
func Credential(m *Metrics, log *slog.Logger) Stage {
	return func(next Func) Func {
		return func(ctx context.Context, c *Call, o *Outcome) (*provider.Response, error) {
			if !c.Model.HasKeys() || c.Batched != nil {
				o.Key = c.Model.Key
				return next(ctx, c, o)
			}
			own := *c
			own.Model = c.Model.Pick(c.beginning(), o.tried, c.Serves)
			o.Key, o.tried, o.another = own.Model.Key, append(o.tried, own.Model.Key), false
			own.elsewhere = c.Model.Ready(o.tried, c.Serves)
			response, err := next(ctx, &own, o)
			rest, why, end := own.Model.Rest(err)
			if failure, ok := provider.As(err); ok && !failure.Auth && failure.Status == http.StatusForbidden && end != nil {
				o.forbidden = append(o.forbidden, end)
				o.another = c.Model.Ready(o.tried, c.Serves)
				// Either the request is refused with any credential, or there is no other credential to find that out
				// with.
				if len(o.forbidden) > 1 || !o.another {
					for _, end := range o.forbidden {
						end()
					}
					rest = 0
				}
			}
			if rest > 0 {
				o.another = c.Model.Ready(o.tried, c.Serves)
				m.rested(own.Model, why)
				log.WarnContext(ctx, "a credential of an account is passed over for a time", "provider", c.Model.Kind.Name, "account", c.Model.Account, "key", own.Model.Key,
					"model", c.Model.FullName(), "why", why, "for", rest)
			}
			return response, err
		}
	}
}

func (c *Call) beginning() []byte {
	if c.Beginning != nil {
		return c.Beginning()
	}
	return Beginning(c.Messages)
}

// Beginning is what is the same in all calls of a conversation, and differs from that of others: the messages up to the
// first one of the user.
func Beginning(messages []*modelv1.ChatMessage) []byte {
	var b bytes.Buffer
	for _, m := range messages {
		b.WriteString(chat.Text(m))
		b.WriteByte(0)
		if m.GetRole() == modelv1.Role_ROLE_USER {
			break
		}
	}
	return b.Bytes()
}
