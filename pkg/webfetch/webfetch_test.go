package webfetch

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// anywhere permits every connection, so that a test can have a server.
func anywhere(string, string, syscall.RawConn) error { return nil }

const png = "\x89PNG\r\n\x1a\n"

func pictures(t *testing.T) *httptest.Server {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/a.png", func(w http.ResponseWriter, r *http.Request) {
		assert.Equal(t, "evalfleet", r.UserAgent())
		w.Header().Set("Content-Type", "image/png; charset=x")
		_, _ = w.Write([]byte(png))
	})
	mux.HandleFunc("/unnamed", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/octet-stream")
		_, _ = w.Write([]byte(png))
	})
	mux.HandleFunc("/away", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "http://other.example/a.png", http.StatusFound)
	})
	mux.HandleFunc("/file", func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, "file:///etc/passwd", http.StatusFound)
	})
	mux.HandleFunc("/here", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/a.png", http.StatusFound) })
	mux.HandleFunc("/round", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/round", http.StatusFound) })
	mux.HandleFunc("/silent", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return s
}

func TestWhatAnAllowedHostHasIsFetched(t *testing.T) {
	t.Parallel()
	s := pictures(t)
	f := newFetcher([]string{"127.0.0.1"}, anywhere)
	for _, path := range []string{"/a.png", "/unnamed", "/here"} {
		got, err := f.Get(t.Context(), s.URL+path, int64(len(png)))
		require.NoError(t, err, path)
		assert.Equal(t, Thing{Type: "image/png", Body: []byte(png)}, got, path)
	}
}

func TestWhatCannotBeFetchedIsSaid(t *testing.T) {
	t.Parallel()
	s := pictures(t)
	f := newFetcher([]string{"127.0.0.1"}, anywhere)
	for address, want := range map[string]string{
		s.URL + "/missing":         "its server answers 404",
		s.URL + "/away":            "its host other.example is not among those that the operator allows",
		s.URL + "/file":            "it is no plain http address",
		s.URL + "/round":           "it has more than 5 redirects",
		"http://other.example/":    "its host other.example is not among",
		"http://ada:pw@127.0.0.1/": "it is no plain http address",
		"http://127.0.0.1:1/":      "its server cannot be reached",
		"file:///etc/passwd":       "it is no plain http address",
		"http://[::1":              "it is no address",
		"":                         "it is no plain http address",
	} {
		_, err := f.Get(t.Context(), address, 100)
		require.ErrorContains(t, err, want, address)
	}
	_, err := f.Get(t.Context(), s.URL+"/a.png", int64(len(png)-1))
	require.ErrorContains(t, err, "it has more bytes than the 7 that are left")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	_, err = f.Get(ctx, s.URL+"/silent", 100)
	require.ErrorContains(t, err, "does not answer in time")
}

// A name may lead anywhere: only public addresses are connected to, whatever was allowed.
func TestNothingWithinTheNetworkIsConnectedTo(t *testing.T) {
	t.Parallel()
	s := pictures(t)
	_, port, err := net.SplitHostPort(strings.TrimPrefix(s.URL, "http://"))
	require.NoError(t, err)
	f := New([]string{"*"})
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1", "169.254.169.254", "192.168.1.1", "100.64.0.1", "[fe80::1]", "[fd00::1]"} {
		for _, port := range []string{":" + port, ""} {
			_, err := f.Get(t.Context(), "http://"+host+port+"/a.png", 100)
			require.EqualError(t, err, "its server cannot be reached", host+port)
		}
	}
}

func TestHostsAreAllowedByNameOrBelowOne(t *testing.T) {
	t.Parallel()
	f := New([]string{"Pictures.example", "*.wide.example"})
	for address, ok := range map[string]bool{
		"https://pictures.example/a": true, "http://PICTURES.example:8080/": true, "https://a.pictures.example/": false, "https://pictures.example.evil/": false,
		"https://a.b.wide.example/": true, "https://wide.example/": false, "https://nwide.example/": false, "https://evil/?pictures.example": false,
	} {
		r, err := http.NewRequest(http.MethodGet, address, http.NoBody)
		require.NoError(t, err)
		assert.Equal(t, ok, f.allowed(r.URL) == nil, address)
	}
}

func TestAConfigurationIsValidated(t *testing.T) {
	t.Parallel()
	good := Config{Hosts: []string{"a.example", "*.example", "*"}}
	good.SetDefaults()
	require.NoError(t, good.Validate())
	for _, host := range []string{"", "https://a.example", "a.example:80", "a.*.example", "*."} {
		c := good
		c.Hosts = []string{host}
		require.ErrorContains(t, c.Validate(), "hosts[0]", host)
	}
	require.ErrorContains(t, (&Config{MaxBytes: -1, Timeout: 1}).Validate(), "max_bytes")
	require.ErrorContains(t, (&Config{MaxBytes: 1, Timeout: -1}).Validate(), "timeout")
}
