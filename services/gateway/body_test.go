package gateway_test

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/agent/v1"
)

func TestABodyIsOneWholeMessageOrNone(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]int{
		` {"spec": {"steps": [{"name": "generate"}]}} `: http.StatusOK,
		``:    http.StatusBadRequest, // the message lacks a required field
		" \n": http.StatusBadRequest,
		`{"spec": {"steps": [{"name": "generate"}]}} {}`:       http.StatusBadRequest,
		`{"spec": {"steps": [{"name": "generate"}]`:            http.StatusBadRequest,
		`{"spec": {"steps": [{"name": "generate"}]}, "no": 1}`: http.StatusBadRequest,
		`[]`: http.StatusBadRequest,
	} {
		t.Run(body, func(t *testing.T) {
			t.Parallel()
			addr := start(t, &runs{created: make(chan *agentv1.CreateRunRequest, 1)})
			resp, said := call(t, http.MethodPost, "http://"+addr+"/api/v1/projects/default/runs", body, nil)
			require.Equal(t, want, resp.StatusCode, said)
			assert.Equal(t, strconv.Itoa(len(said)), resp.Header.Get("Content-Length"))
		})
	}
}
