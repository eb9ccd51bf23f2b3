package bound

import "time"

// Connections.
const (
	// Connections is how many connections a server has open at once, unless its configuration (max_connections) sets
	// another number. When another one arrives, the server closes one without an accepted credential; if there is none,
	// the one that has been without a call for longest; if all have calls, the new one. It is at most half of the files
	// that the process may open.
	Connections = 4096
	// Strangers is how many connections without an accepted credential a server serves at once. Further ones wait,
	// unread, until one shows a credential or closes; the last that came is served first. As many may be open as half of
	// Connections: when another one arrives, the first that has made a request is closed; if none has, one of the older
	// half.
	Strangers = 256
	// StrangerTurn is how long such a connection is always served, unless it has made a request without a credential.
	// After that one that waits takes its place, and it is closed.
	StrangerTurn = 250 * time.Millisecond
	// SpareIdle is how long a connection with an accepted credential may have no call before it is closed to make room.
	SpareIdle = 5 * time.Second
	// FirstAcceptPause and LongestAcceptPause are the shortest and the longest pause after a failed accept. Each
	// further failure doubles the pause.
	FirstAcceptPause   = 5 * time.Millisecond
	LongestAcceptPause = time.Second
	// Greeting is how long a connection may take to send the first bytes, by which its protocol is recognized. The
	// connection is closed after it.
	Greeting = 10 * time.Second
	// IdleGRPC is how long a gRPC connection may have no call before the server closes it. Clients connect again with
	// the next call.
	IdleGRPC = 15 * time.Minute
	// IdleHTTP is how long an HTTP connection may have no request before the server closes it.
	IdleHTTP = 2 * time.Minute
	// PeerPing is how long a gRPC connection may be silent before the server pings the peer. PeerAnswer is how long the
	// peer may take to answer before the connection is closed.
	PeerPing   = 2 * time.Minute
	PeerAnswer = 20 * time.Second
)

// Requests.
const (
	// RequestHeaderBytes bounds the headers of a request, of gRPC and HTTP, counted as HTTP/2 counts them. A larger
	// HTTP request is answered with 431; a larger gRPC call is refused by the client's transport or reset.
	RequestHeaderBytes = 64 << 10
	// RequestHeaderTime is how long an HTTP client may take to send the headers of a request.
	RequestHeaderTime = 10 * time.Second
	// BodyPause is how long an HTTP client may pause while it sends a body. A body that keeps coming may take any time.
	BodyPause = 30 * time.Second
	// DiscardedBytes bounds how much of a refused HTTP body is read and discarded: most clients read the answer only after
	// they have sent the whole body, and lose it if the connection ends before.
	DiscardedBytes = 256 << 20
	// MessageBytes bounds each message of a call, of requests and of answers. Large values are offloaded to the
	// project's blobs (the field `offloaded`); a larger request is refused with REQUEST_TOO_LARGE, a larger answer with
	// OUTPUT_LIMIT.
	MessageBytes = 4 << 20
	// OffloadedBytes bounds the offloaded values of one message. A request with more is refused with REQUEST_TOO_LARGE.
	OffloadedBytes = 64 << 20
	// HeldBytes bounds the offloaded values of all requests that a process works on, from when they are read until the
	// call and the work that it began have ended, or on a stream until the next message is waited for. A request beyond
	// it is refused with SERVICE_UNAVAILABLE, and may be sent again.
	HeldBytes = 1 << 30
	// ModelNameBytes bounds the name of a model, with its provider's: pools, metrics and spans have it. A longer one is
	// no model.
	ModelNameBytes = 2 << 10
	// ConversationBytes bounds the messages of one model call, encoded. A larger conversation is refused with
	// REQUEST_TOO_LARGE.
	ConversationBytes = 64 << 20
	// KeptConversationBytes bounds the conversations that modelgw keeps in memory for calls that continue them, by a
	// prefix. The least recently used one is evicted, and its callers send it again.
	KeptConversationBytes = 128 << 20
	// RequestValues bounds the JSON values of a body that is read in full, a member and its name as one: over REST, and
	// of a request in a vendor's format to a model of another. A larger one is refused with 400 and 413. A vendor's
	// request that is relayed as bytes has no such bound.
	RequestValues = 200_000
	// ConnectionStreams is how many calls of one gRPC connection run at once. Further calls wait in the client.
	ConnectionStreams = 10_000
	// StrangerFrames is how many frames of HTTP/2 a gRPC connection may send before its first call and not count as one
	// that has made a request.
	StrangerFrames = 8
	// StrangerCalls is how many calls without a credential (health, reflection) run at once. The oldest is ended with
	// RESOURCE_EXHAUSTED when another one arrives.
	StrangerCalls = 64
	// StrangerMessageBytes bounds each message of such a call. A larger one is refused with REQUEST_TOO_LARGE, unread.
	StrangerMessageBytes = 4 << 10
	// StrangerBytes is how much a gRPC connection without an accepted credential makes the server hold in calls that
	// have not ended; StrangerCalls of the usual size fit. Beyond it the server stops reading the connection. Calls
	// that are reset count until the connection is closed.
	StrangerBytes = 512 << 10
	// StrangerAnswerBytes is how many bytes of unsent answers such a connection may have. Further answers wait. An
	// answer that is larger waits for all others.
	StrangerAnswerBytes = 64 << 10
	// StrangerPause is how long the server does not read such a connection, because of its calls or because the client
	// reads nothing, before it closes the connection. An HTTP client without a credential has as long for the answer to
	// its request.
	StrangerPause = 10 * time.Second
	// StrangerWork is how much work a second a server does on calls of gRPC connections without an accepted credential
	// together, beyond StrangerOwnWork for each of them. A frame of HTTP/2 counts 1, a call 10 and an answer of
	// reflection 100; one takes some 10 µs of a processor. Work beyond it waits. Connections take turns.
	StrangerWork = 10_000
	// StrangerOwnWork is how much work a second such a connection has always, and StrangerOwnBurst how much at once:
	// health checks, three a second, wait for no other connection, nor does the first answer of reflection.
	StrangerOwnWork  = 50
	StrangerOwnBurst = 200
)

// Answers.
const (
	// UnreadStream is how long a gRPC client may leave a stream unread before it is ended with DEADLINE_EXCEEDED. A
	// watch can be resumed from its cursor.
	UnreadStream = 5 * time.Minute
	// FieldViolations is how many fields an error names. The rest is counted.
	FieldViolations = 20
	// FieldPathBytes and FieldDescriptionBytes bound an error's text about one field; the rest is cut.
	FieldPathBytes        = 256
	FieldDescriptionBytes = 1 << 10
	// ErrorMessageBytes bounds the message of an error; the rest is cut.
	ErrorMessageBytes = 8 << 10
)

// Tokens.
const (
	// TokenCharacters is how many characters the admin token has at least. A server with a shorter one does not start.
	TokenCharacters = 16
	// TokenFileBytes bounds a token file. A larger one is refused.
	TokenFileBytes = 4 << 10
)
