package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/evalfleet/evalfleet/bench/internal/load"
	guestv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/guest/v1"
	sandboxv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/sandbox/v1"
)

const (
	// guestDials is how long a guest may take to dial a host that came back.
	guestDials = 10 * time.Second
	// answerBytes is how much of each stream an answer may hold, as sandboxd asks for it.
	answerBytes = 3 << 19
	// window bounds the unread bytes in flight, as sandboxd does on its connections to guests.
	window = 1 << 20
)

// guestExec is a command in a sandbox, requested from its guest without sandboxd. A guest serves any process that
// listens in its control folder; so sandboxd makes the sandbox and stops, this program listens in its place, and at the
// end sandboxd starts again to remove the sandbox.
func guestExec(ctx context.Context, e *env, stop *cleanup) (load.Call, error) {
	const name = "guest"
	made, err := makeBox(ctx, e, name)
	if err != nil {
		return nil, err
	}
	if err := made.leave(); err != nil {
		return nil, err
	}
	stop.add(func() error {
		ctx := context.WithoutCancel(ctx)
		back, err := connect(ctx, e, name)
		if err != nil {
			return err
		}
		back.name = made.name
		return back.remove(ctx)
	})
	stream, err := awaitGuest(filepath.Join(e.data(name), "sandboxes", "local", "*", "ctl"))
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient("passthrough:///guest", grpc.WithTransportCredentials(insecure.NewCredentials()), grpc.WithContextDialer(once(stream)),
		grpc.WithStaticStreamWindowSize(window), grpc.WithStaticConnWindowSize(window))
	if err != nil {
		return nil, errors.Join(err, stream.Close())
	}
	stop.add(conn.Close)
	guest := guestv1.NewGuestServiceClient(conn)
	if _, err := guest.Hello(ctx, &guestv1.HelloRequest{Sandbox: made.name, Env: map[string]string{"PATH": "/usr/bin:/bin"}, Workdir: "/"}); err != nil {
		return nil, err
	}
	key := 0
	return func(ctx context.Context, _, _ int) error {
		key++
		done, err := guest.Run(ctx, &guestv1.RunRequest{
			Key: strconv.Itoa(key), ContentHash: []byte("true"), Spec: &sandboxv1.ExecSpec{Argv: []string{truePath}}, MaxAnswerBytes: answerBytes,
		})
		return errors.Join(err, failed(done.GetResult()))
	}, nil
}

// awaitGuest listens in the one control folder that matches and returns the guest's connection.
func awaitGuest(pattern string) (net.Conn, error) {
	folders, err := filepath.Glob(pattern)
	if err != nil || len(folders) != 1 {
		return nil, fmt.Errorf("want one sandbox at %s, found %d: %w", pattern, len(folders), err)
	}
	folder, err := os.Open(folders[0])
	if err != nil {
		return nil, err
	}
	defer folder.Close()
	// By way of the descriptor, since the path of a socket may not be longer than 107 bytes.
	path := fmt.Sprintf("/proc/self/fd/%d/h.sock", folder.Fd())
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // the guest is another user to the kernel; the folder above is closed to others
		return nil, err
	}
	if err := listener.SetDeadline(time.Now().Add(guestDials)); err != nil {
		return nil, err
	}
	return listener.Accept()
}

// once returns a stream to the first caller that dials.
func once(stream net.Conn) func(context.Context, string) (net.Conn, error) {
	given := make(chan net.Conn, 1)
	given <- stream
	return func(context.Context, string) (net.Conn, error) {
		select {
		case c := <-given:
			return c, nil
		default:
			return nil, errors.New("the guest's connection was cut")
		}
	}
}
