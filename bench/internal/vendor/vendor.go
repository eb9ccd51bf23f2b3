// Package vendor is a scripted provider that speaks chat completions and costs little beside the gateway before it: it
// answers from memory, with one write for an answer and one for each chunk of a stream. The name of the model selects
// the answer.
package vendor

import (
	"bytes"
	"context"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/evalfleet/evalfleet/bench/internal/rawhttp"
)

// The models.
const (
	// Plain answers at once, with 500 bytes of text.
	Plain = "gpt-4o-plain"
	// Burst streams [Chunks] at once, and Paced one every [Pace].
	Burst = "gpt-4o-burst"
	Paced = "gpt-4o-paced"
	// Held begins the names of models that answer after [Vendor.Release].
	Held = "gpt-4o-held"
	// Endless streams until the client has gone, see [Vendor.Gone].
	Endless = "gpt-4o-endless"
)

// The streams.
const (
	Chunks = 50
	Pace   = 10 * time.Millisecond
)

// Vendor is a running server. Its methods are safe for concurrent use.
type Vendor struct {
	// Address is where it serves.
	Address string
	// Gone receives the time when the client of an endless answer was seen to have gone.
	Gone chan time.Time

	listener net.Listener
	serving  sync.WaitGroup

	mu      sync.Mutex
	conns   map[net.Conn]bool // nil once it is stopped
	held    int
	release chan struct{}
}

// Start starts a server. The caller must Stop it.
func Start(ctx context.Context) (*Vendor, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	v := &Vendor{Address: listener.Addr().String(), Gone: make(chan time.Time, 1), listener: listener, conns: map[net.Conn]bool{}, release: make(chan struct{})}
	v.serving.Go(v.accept)
	return v, nil
}

// Stop closes all connections and waits until they are served no more.
func (v *Vendor) Stop() error {
	err := v.listener.Close()
	v.mu.Lock()
	for conn := range v.conns {
		_ = conn.Close()
	}
	v.conns = nil
	close(v.release)
	v.mu.Unlock()
	v.serving.Wait()
	return err
}

// Held is how many requests are held.
func (v *Vendor) Held() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.held
}

// Release answers the requests that are held.
func (v *Vendor) Release() {
	v.mu.Lock()
	defer v.mu.Unlock()
	close(v.release)
	v.release, v.held = make(chan struct{}), 0
}

func (v *Vendor) accept() {
	for {
		conn, err := v.listener.Accept()
		if err != nil {
			return
		}
		v.mu.Lock()
		open := v.conns != nil
		if open {
			v.conns[conn] = true
		}
		v.mu.Unlock()
		if !open {
			_ = conn.Close()
			return
		}
		v.serving.Go(func() {
			v.serve(conn)
			_ = conn.Close()
			v.mu.Lock()
			defer v.mu.Unlock()
			delete(v.conns, conn)
		})
	}
}

// serve answers the requests of a connection until it ends.
func (v *Vendor) serve(conn net.Conn) {
	in := rawhttp.NewReader(conn)
	for {
		head, err := in.Head()
		if err != nil {
			return
		}
		body, err := in.Body(head, nil)
		if err != nil {
			return
		}
		switch model := modelOf(body); {
		case model == Burst:
			err = stream(conn, 0)
		case model == Paced:
			err = stream(conn, Pace)
		case model == Endless:
			v.endless(conn)
			return
		case strings.HasPrefix(model, Held):
			v.hold()
			fallthrough
		default:
			_, err = conn.Write(answer)
		}
		if err != nil {
			return
		}
	}
}

func (v *Vendor) hold() {
	v.mu.Lock()
	v.held++
	release := v.release
	v.mu.Unlock()
	<-release
}

// modelOf is the model that a request names.
func modelOf(body []byte) string {
	_, rest, _ := bytes.Cut(body, []byte(`"model":"`))
	name, _, _ := bytes.Cut(rest, []byte(`"`))
	return string(bytes.TrimPrefix(name, []byte("openai/"))) // As a client of the gateway writes it.
}

const meta = `"id":"chatcmpl-1","created":1700000000,"model":"gpt-4o",`

var (
	answer = rawhttp.JSON(`{` + meta + `"object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"` + strings.Repeat("lorem ipsum ", 42) +
		`"},"logprobs":null,"finish_reason":"stop"}],"usage":{"prompt_tokens":250,"completion_tokens":120,"total_tokens":370}}`)
	first = []byte(rawhttp.Events + event(`{"role":"assistant","content":""}`, `null`, ""))
	chunk = []byte(event(`{"content":" token"}`, `null`, ""))
	last  = []byte(event(`{}`, `"stop"`, `,"usage":{"prompt_tokens":250,"completion_tokens":50,"total_tokens":300}`) + rawhttp.Chunk("data: [DONE]\n\n") + rawhttp.End)
)

// Token is in each chunk of a stream that has text, once.
const Token = `" token"`

func event(delta, reason, more string) string {
	return rawhttp.Chunk(`data: {` + meta + `"object":"chat.completion.chunk","choices":[{"index":0,"delta":` + delta + `,"logprobs":null,"finish_reason":` + reason + `}]` + more + "}\n\n")
}

func stream(conn net.Conn, pace time.Duration) error {
	if _, err := conn.Write(first); err != nil {
		return err
	}
	for range Chunks {
		if pace > 0 {
			time.Sleep(pace)
		}
		if _, err := conn.Write(chunk); err != nil {
			return err
		}
	}
	_, err := conn.Write(last)
	return err
}

// endless streams until the client has gone, and reports when that was seen.
func (v *Vendor) endless(conn net.Conn) {
	ended := make(chan struct{})
	v.serving.Go(func() {
		pieces := time.NewTicker(Pace)
		defer pieces.Stop()
		_, err := conn.Write(first)
		for err == nil {
			_, err = conn.Write(chunk)
			select {
			case <-pieces.C:
			case <-ended:
				return
			}
		}
	})
	_, _ = conn.Read(make([]byte, 1)) // The client sends nothing: the read ends with the connection.
	now := time.Now()
	close(ended)
	select {
	case v.Gone <- now:
	default:
	}
}
