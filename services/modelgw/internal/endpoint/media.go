package endpoint

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/evalfleet/evalfleet/pkg/chat"
	"github.com/evalfleet/evalfleet/pkg/dialect"
	contentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/content/v1"
	"github.com/evalfleet/evalfleet/pkg/webfetch"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
)

// Fetcher gets what is at an address that a client named, of at most maxBytes.
type Fetcher interface {
	Get(ctx context.Context, address string, maxBytes int64) (webfetch.Thing, error)
}

// fetching bounds the requests whose media is fetched at once: each may hold all that it fetches.
const fetching = 16

// inline puts the media itself in the place of addresses, except of those that the provider of the model fetches.
func (e *Endpoints) inline(ctx context.Context, x *exchange, a *dialect.Request, fetches provider.Fetches) error {
	left, begun := e.cfg.FetchMedia.MaxBytes, false
	for i, message := range a.Messages {
		for j, part := range message.GetContent().GetList().GetParts() {
			address := chat.Media(part).GetUri()
			if !dialect.IsAddress(address) || fetches.Has(part) {
				continue
			}
			refused := func(why error) error {
				return dialect.NotSupported(x.about.Messages, "%s of message %d, part %d: %v", provider.ShownURL(address), i, j, why)
			}
			if e.deps.Fetch == nil {
				return refused(errors.New("is not fetched here; give the data itself, in base64"))
			}
			if !begun {
				timed, cancel := context.WithTimeout(ctx, e.cfg.FetchMedia.Timeout)
				defer cancel()
				ctx = timed
				select {
				case e.fetching <- struct{}{}:
					defer func() { <-e.fetching }()
				case <-ctx.Done():
					return refused(errors.New("was not fetched, since many others were"))
				}
				begun = true
			}
			fetched, err := e.deps.Fetch.Get(ctx, address, left)
			if err != nil {
				return refused(fmt.Errorf("cannot be fetched: %w", err))
			}
			left -= int64(len(fetched.Body))
			if err := insert(part, fetched); err != nil {
				return refused(err)
			}
		}
	}
	return nil
}

// insert puts what was fetched into a part.
func insert(part *contentv1.Content, fetched webfetch.Thing) error {
	if part.GetImage() != nil && !strings.HasPrefix(fetched.Type, "image/") {
		return fmt.Errorf("is no image: it is %s", fetched.Type)
	}
	if document := part.GetDocument(); document != nil {
		document.MimeType = fetched.Type
	}
	chat.Media(part).Source = &contentv1.Media_Uri{Uri: "data:" + fetched.Type + ";base64," + base64.StdEncoding.EncodeToString(fetched.Body)}
	return nil
}
