package redisclient_test

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http/httptest"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/pkg/redisclient"
	"github.com/evalfleet/evalfleet/pkg/redistest"
)

func open(t *testing.T, o redisclient.Options) *redisclient.Client {
	t.Helper()
	client := redisclient.Open(o)
	t.Cleanup(func() { assert.NoError(t, client.Close()) })
	return client
}

// An error names the server and what to look at, and no secret.
func TestAServerThatDoesNotAnswerIsNamed(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	admin := open(t, server.Options())
	require.NoError(t, admin.Check(t.Context()))
	require.NoError(t, admin.ConfigSet(t.Context(), "requirepass", "right").Err())
	with := func(change func(*redisclient.Options)) redisclient.Options {
		o := server.Options()
		change(&o)
		return o
	}
	nowhere := filepath.Join(t.TempDir(), "none.sock")
	for want, o := range map[string]redisclient.Options{
		"check the username and the password":          with(func(o *redisclient.Options) { o.Password = config.NewSecret("hunter2") }),
		"the server wants a password":                  with(func(*redisclient.Options) {}),
		"check the number of the database":             with(func(o *redisclient.Options) { o.Password, o.DB = config.NewSecret("right"), 99 }),
		"redis at " + nowhere + " does not answer":     with(func(o *redisclient.Options) { o.Addresses = []string{nowhere} }),
		"no such file or directory; check that it run": with(func(o *redisclient.Options) { o.Addresses = []string{nowhere} }),
	} {
		err := open(t, o).Check(t.Context())
		require.ErrorContains(t, err, want)
		assert.NotContains(t, err.Error(), "hunter2")
	}
	require.NoError(t, open(t, with(func(o *redisclient.Options) { o.Password = config.NewSecret("right") })).Check(t.Context()))
}

// Connections are encrypted where that is asked for, and only to a server with a certificate that is trusted.
func TestConnectionsAreEncrypted(t *testing.T) {
	t.Parallel()
	server := redistest.New(t)
	identity := httptest.NewTLSServer(nil)
	t.Cleanup(identity.Close)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: identity.TLS.Certificates})
	require.NoError(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go relay(listener, server.Socket())

	trusted := x509.NewCertPool()
	trusted.AddCert(identity.Certificate())
	at := []string{listener.Addr().String()}
	require.NoError(t, open(t, redisclient.Options{Addresses: at, TLS: &tls.Config{RootCAs: trusted}}).Check(t.Context()))
	err = open(t, redisclient.Options{Addresses: at, TLS: &tls.Config{RootCAs: x509.NewCertPool()}}).Check(t.Context())
	require.ErrorContains(t, err, "has a certificate that this machine trusts")
}

// relay passes connections on to a socket.
func relay(listener net.Listener, socket string) {
	for {
		from, err := listener.Accept()
		if err != nil {
			return
		}
		go func() {
			defer from.Close()
			to, err := net.Dial("unix", socket)
			if err != nil {
				return
			}
			defer to.Close()
			go func() {
				_, _ = io.Copy(to, from)
				_ = to.Close()
			}()
			_, _ = io.Copy(from, to)
		}()
	}
}
