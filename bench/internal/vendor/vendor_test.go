package vendor_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/bench/internal/rawhttp"
	"github.com/evalfleet/evalfleet/bench/internal/vendor"
	"github.com/evalfleet/evalfleet/pkg/waittest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestTheModelSelectsTheAnswer(t *testing.T) {
	t.Parallel()
	v, err := vendor.Start(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, v.Stop()) })
	ask := func(model string) (net.Conn, *rawhttp.Reader) {
		conn, err := (&net.Dialer{}).DialContext(context.WithoutCancel(t.Context()), "tcp", v.Address)
		require.NoError(t, err)
		t.Cleanup(func() { conn.Close() })
		_, err = conn.Write(rawhttp.Post(v.Address, "/v1/chat/completions", "t", `{"model":"`+model+`"}`))
		require.NoError(t, err)
		return conn, rawhttp.NewReader(conn)
	}

	_, in := ask(vendor.Plain)
	body, err := in.Answer(nil)
	require.NoError(t, err)
	assert.Contains(t, string(body), "lorem ipsum")

	_, in = ask(vendor.Burst)
	body, err = in.Answer(nil)
	require.NoError(t, err)
	assert.Equal(t, vendor.Chunks, strings.Count(string(body), vendor.Token))

	answered := make(chan error, 1)
	_, in = ask(vendor.Held + "-1")
	go func() {
		_, err := in.Answer(nil)
		answered <- err
	}()
	require.Eventually(t, func() bool { return v.Held() == 1 }, time.Minute, time.Millisecond)
	v.Release()
	require.NoError(t, waittest.For(t, answered, "the answer"))
	assert.Zero(t, v.Held())

	conn, in := ask(vendor.Endless)
	head, err := in.Head()
	require.NoError(t, err)
	assert.True(t, head.Chunked)
	require.NoError(t, conn.Close())
	waittest.For(t, v.Gone, "the client to be seen to have gone")
}
