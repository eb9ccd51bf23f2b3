// Package role has the roles of the program as its own child: the simplest reverse proxy, and a server with a constant
// answer. Each runs in a separate process, so that its processor time can be measured apart.
package role

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/process"
)

// Child is the first argument of a program that is to be one of the roles.
const Child = "child"

// The roles, as the second argument.
const (
	// Proxy passes requests on to -to.
	Proxy = "proxy"
	// Stub answers every request with what is in -body.
	Stub = "stub"
)

// maxIdle keeps the connections of all callers open.
const maxIdle = 4096

// copySize is the size of a proxy's buffers.
const copySize = 32 << 10

// buffers pools what a proxy copies with.
type buffers struct{ sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if kept, ok := b.Pool.Get().(*[copySize]byte); ok {
		return kept[:]
	}
	return make([]byte, copySize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(used []byte) { b.Pool.Put((*[copySize]byte)(used)) }

// Main is a role until ctx ends. Args are what follows [Child].
func Main(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet(Child, flag.ContinueOnError)
	to := flags.String("to", "", "address that a proxy passes requests on to")
	body := flags.String("body", "", "file with the body that a stub answers, as JSON")
	if len(args) == 0 {
		return errors.New("which role?")
	}
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	var handler http.Handler
	switch args[0] {
	case Proxy:
		handler = proxy(*to)
	case Stub:
		answer, err := os.ReadFile(*body)
		if err != nil {
			return err
		}
		handler = stub(answer)
	default:
		return fmt.Errorf("no role %q", args[0])
	}
	return serve(ctx, handler, stdout)
}

// proxy is httputil.ReverseProxy and nothing else. It forwards requests in HTTP/2, such as gRPC, in HTTP/2.
func proxy(to string) http.Handler {
	target := &url.URL{Scheme: "http", Host: to}
	pass := func(p http.Protocols) http.Handler {
		return &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) },
			Transport: &http.Transport{
				Protocols: &p, MaxIdleConnsPerHost: maxIdle, DisableCompression: true, ReadBufferSize: copySize, WriteBufferSize: copySize,
			},
			BufferPool: &buffers{},
		}
	}
	var first, second http.Protocols
	first.SetHTTP1(true)
	second.SetUnencryptedHTTP2(true)
	one, two := pass(first), pass(second)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 {
			two.ServeHTTP(w, r)
			return
		}
		// Else the server may close the request's body when the answer begins, a moment before the transport has seen
		// the body's end, and the transport then drops the answer.
		_ = http.NewResponseController(w).EnableFullDuplex()
		one.ServeHTTP(w, r)
	})
}

func stub(answer []byte) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(answer)
	})
}

func serve(ctx context.Context, handler http.Handler, stdout io.Writer) error {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := &http.Server{Handler: handler, Protocols: &protocols, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	if err := process.Ready(stdout, listener.Addr().String()); err != nil {
		return errors.Join(err, server.Close())
	}
	select {
	case err = <-served:
	case <-ctx.Done():
		err = server.Close()
		if ended := <-served; !errors.Is(ended, http.ErrServerClosed) {
			err = errors.Join(err, ended)
		}
	}
	return err
}
