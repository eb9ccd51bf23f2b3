package inprocess

import (
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/evalfleet/evalfleet/pkg/bound"
)

// MaxHeaderBytes bounds the headers of one side of a call, and its trailers, counted as HTTP/2 counts them; the
// network's bound is the same.
const MaxHeaderBytes = bound.RequestHeaderBytes

// headerOverhead is what HTTP/2 counts for each header beside its key and its value (RFC 9113, section 6.5.2).
const headerOverhead = 32

// carry does to metadata what gRPC's transport does before it is sent: what it keeps for its own use is left out, what
// is no header is refused.
func carry(md metadata.MD) error {
	size := 0
	for key, values := range md {
		if reserved(key) {
			delete(md, key)
			continue
		}
		if key == "" || strings.ContainsFunc(key, foreign) {
			return status.Errorf(codes.Internal, "header key %q is empty or contains illegal characters not in [0-9a-z-_.]", key)
		}
		binary := strings.HasSuffix(key, "-bin")
		for _, value := range values {
			if !binary && strings.ContainsFunc(value, unprintable) {
				return status.Errorf(codes.Internal, "header key %q contains value with non-printable ASCII characters", key)
			}
			size += len(key) + len(value) + headerOverhead
		}
	}
	if size > MaxHeaderBytes {
		return status.Errorf(codes.Internal, "header list size to send, %d bytes, violates the maximum size (%d bytes)", size, MaxHeaderBytes)
	}
	return nil
}

// add joins metadata to what there is, if it can be carried.
func add(to *metadata.MD, md metadata.MD) error {
	if len(md) == 0 {
		return nil
	}
	joined := metadata.Join(*to, md)
	if err := carry(joined); err != nil {
		return err
	}
	*to = joined
	return nil
}

// reserved tells headers of the transport from those of callers and handlers.
func reserved(key string) bool {
	switch key {
	case "content-type", "user-agent", "te", "grpc-message-type", "grpc-encoding", "grpc-message", "grpc-status", "grpc-timeout":
		return true
	}
	return strings.HasPrefix(key, ":")
}

// foreign tells what no key contains.
func foreign(r rune) bool {
	return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-' && r != '_' && r != '.'
}

// unprintable tells what no value contains, save under keys for bytes.
func unprintable(r rune) bool { return r < ' ' || r > '~' }
