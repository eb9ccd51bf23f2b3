package provider

import (
	"context"
	"net/http"
	"time"
)

// Carrier transports the requests of an attempt in place of a connection of their own, such as in a batch.
type Carrier interface {
	// Carry returns the answer to a request. It fails with an *Error if there will be none, with the context's error,
	// or with BATCH_PENDING if there is none yet.
	Carry(ctx context.Context, post Post) (*http.Response, error)
}

// Post is a request as a provider would have posted it.
type Post struct {
	URL    string
	Header http.Header
	// Body is the caller's; it is not to be kept.
	Body []byte
}

// BatchAPI is the batch API of a vendor, with one account. It is safe for concurrent use. The errors of its methods are
// those of Provider.Generate: an *Error has a class, and one that is not Final leaves open whether the vendor acted.
type BatchAPI interface {
	// Submit has the vendor take a batch, and returns the vendor's id of it.
	Submit(ctx context.Context, b BatchIntent, lines []BatchLine) (id string, err error)
	// Find returns the id of the batch that an earlier Submit of the intent made; empty if it made none. If the vendor
	// does not say of a batch who made it, Find may return that of another; the ids of its results then tell.
	Find(ctx context.Context, b BatchIntent) (id string, err error)
	// Status returns the state of a batch.
	Status(ctx context.Context, id string) (BatchStatus, error)
	// Results calls each for the results of a batch that has ended, in any order, until it fails. Requests without a
	// result are not among them.
	Results(ctx context.Context, s BatchStatus, each func(BatchResult) error) error
	// Cancel has the vendor stop a batch. One that has ended is unchanged.
	Cancel(ctx context.Context, id string) error
}

// BatchIntent identifies a batch before the vendor knows it.
type BatchIntent struct {
	// Key is unique; the ids of its lines begin with it.
	Key string
	// Model is the part of the model's name after the first `/`.
	Model string
	// URL is the address of a plain request, and Header the headers of plain requests that a batch has too.
	URL    string
	Header http.Header
	// Requests is the number of its lines.
	Requests int
	// Time is when it was assembled.
	Time time.Time
	// Cancelled means that Find returns a batch that lacks some of its requests too: it is to be cancelled.
	Cancelled bool
	// NotThese are ids that Find has returned and that were of other batches.
	NotThese []string
}

// BatchLine is one request of a batch.
type BatchLine struct {
	// ID consists of at most 64 letters, digits, `_` and `-`.
	ID string
	// Size is the length of the body in bytes.
	Size int64
	// Body reads the body of a plain request. A batch may be larger than memory: Submit keeps few bodies at a time.
	Body func(ctx context.Context) ([]byte, error)
}

// BatchStatus is the state of a batch at its vendor.
type BatchStatus struct {
	ID string
	// Ended means that no more results come.
	Ended bool
	// Completed and Failed count requests, as far as the vendor says.
	Completed, Failed int
	// Missing is why requests without a result have none, such as `the batch has expired`.
	Missing string
	// Sources are where the results are, in the vendor's terms.
	Sources []string
}

// BatchResult is the answer to one request of a batch.
type BatchResult struct {
	ID string
	// Status and Body are those of an answer to a plain request. Status 0 is a request without an answer, and Body is
	// then the reason, as text.
	Status int
	Body   []byte
}

// BatchSupport is what a provider says of its batch API.
type BatchSupport struct {
	API BatchAPI
	// MaxRequests and MaxBytes bound a batch; MaxBytes are those of its bodies.
	MaxRequests int
	MaxBytes    int64
	// PriceShare is the price of a call in a batch, as a part of its plain price; 0 if it is not known.
	PriceShare float64
	// Anonymous means that the vendor does not say of a batch who made it.
	Anonymous bool
	// Dropped are options, by their names in GenerateConfig, that plain calls have and calls in a batch have not.
	Dropped []string
	// Headers are the headers of plain requests that a batch as a whole has too. Others are not sent.
	Headers []string
}
