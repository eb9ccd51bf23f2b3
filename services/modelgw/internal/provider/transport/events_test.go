package transport_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

func TestEventsOfAStreamAreKeptAsTheyCame(t *testing.T) {
	t.Parallel()
	e := transport.NewEvents(true)
	assert.Equal(t, `{"events":[]}`, string(e.Document()))
	e.Add([]byte(`{"a": 1.0}`))
	e.Add([]byte("[DONE]"))
	assert.Equal(t, `{"events":[{"a": 1.0},"[DONE]"]}`, string(e.Document()))
	e.Add([]byte(`"` + strings.Repeat("x", 3<<20) + `"`))
	e.Add([]byte(`{}`))
	assert.Equal(t, `{"events":[{"a": 1.0},"[DONE]"],"events_left_out":2}`, string(e.Document()), "nothing comes after a gap")

	nobody := transport.NewEvents(false)
	nobody.Add([]byte(`{}`))
	assert.Nil(t, nobody.Document())
}

func TestARecordKeepsTheBeginningOfAPage(t *testing.T) {
	t.Parallel()
	call := transport.Record([]byte(`{}`), []byte("<html>"+strings.Repeat("é", 1<<20)), true, time.Now())
	assert.Contains(t, call.GetResponseJson(), `{"body":"<html>éé`)
	assert.Contains(t, call.GetResponseJson(), fmt.Sprintf("[%d bytes left out]", 2<<20+6-64<<10))
}
