package rest

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// variable is a part of a path's template, such as `{name=projects/*}`.
var variable = regexp.MustCompile(`\{([\w.]+)=([^}]*)\}`)

func TestEveryRouteRefusesQueryParametersThatItWouldPassOver(t *testing.T) {
	t.Parallel()
	conn, err := grpc.NewClient("passthrough:///nowhere", grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, conn.Close()) })
	conns := map[string]grpc.ClientConnInterface{}
	for name := range services() {
		conns[name] = conn
	}
	h, err := New(t.Context(), conns)
	require.NoError(t, err)
	all := queries()
	require.Greater(t, len(all), 30)
	for r := range all {
		method, template, _ := strings.Cut(string(r), " ")
		path := variable.ReplaceAllStringFunc(template, func(v string) string {
			return strings.ReplaceAll(strings.ReplaceAll(variable.FindStringSubmatch(v)[2], "**", "x"), "*", "x")
		})
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path+"?bogus=1", http.NoBody))
		assert.Equal(t, http.StatusBadRequest, w.Code, r)
		assert.Contains(t, w.Body.String(), "bogus: unknown query parameter", r)

		for _, v := range variable.FindAllStringSubmatch(template, -1) {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path+"?"+v[1]+"=another", http.NoBody))
			assert.Equal(t, http.StatusBadRequest, w.Code, r)
			if all[r] != nil {
				assert.Contains(t, w.Body.String(), v[1]+": stands in the path already", r)
			}
		}
	}
}
