package gateway

import (
	"io"
	"log/slog"
	"net/http"
	"net/http/httputil"
	"net/url"
	"time"

	"github.com/evalfleet/evalfleet/pkg/auth"
	"github.com/evalfleet/evalfleet/pkg/httpdeadline"
)

// modelConnections bounds the idle connections to modelgw.
const modelConnections = 256

// unanswered is an error in the shapes of all vendors at once.
const unanswered = `{"type":"error","error":{"type":"api_error","message":"modelgw does not answer; try again","param":null,"code":null}}`

// forward proxies HTTP requests to modelgw unchanged, with the caller's own credential, which modelgw checks before it
// reads the body, and streams the answers back. within bounds how long a client may leave an answer unread. idle closes
// idle connections.
func forward(address string, within time.Duration, known auth.Authenticator, log *slog.Logger) (handler http.Handler, idle func()) {
	to := &url.URL{Scheme: "http", Host: address}
	transport := &http.Transport{MaxIdleConns: modelConnections, MaxIdleConnsPerHost: modelConnections, IdleConnTimeout: time.Minute, DisableCompression: true}
	proxy := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(to) },
		Transport:     transport,
		FlushInterval: -1,
		ErrorLog:      slog.NewLogLogger(log.Handler(), slog.LevelDebug),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			log.DebugContext(r.Context(), "modelgw does not answer", "error", err)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, unanswered)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, err := auth.Admit(r.Context(), known, auth.VendorToken(r))
		if err != nil {
			w.Header().Set("Connection", "close") // modelgw refuses the request.
			proxy.ServeHTTP(w, r)
			return
		}
		// Without full duplex the server may close the request's body when the answer begins, just before the transport
		// has seen the body's end.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(httpdeadline.NewWriter(w, within), r)
	}), transport.CloseIdleConnections
}
