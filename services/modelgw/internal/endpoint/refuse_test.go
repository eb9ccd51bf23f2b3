package endpoint

import (
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/evalfleet/evalfleet/pkg/httpdeadline"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

// A failure that many exchanges meet is one value: answering with it must not change it.
func TestOneRefusalAnswersManyExchanges(t *testing.T) {
	t.Parallel()
	before := *errRestarted
	var answers sync.WaitGroup
	for i := range 4 {
		answers.Go(func() {
			answer := httptest.NewRecorder()
			x := &exchange{format: messages, out: httpdeadline.NewWriter(answer, 0), id: fmt.Sprint("req_", i)}
			x.refuse(fmt.Errorf("wrapped: %w", errRestarted))
			assert.Equal(t, errRestarted.Status, answer.Code)
			assert.Contains(t, answer.Body.String(), fmt.Sprintf("%q", x.id))
		})
	}
	waittest.Return(t, answers.Wait, "every exchange to be answered")
	assert.Equal(t, before, *errRestarted)
}
