package awsauth

import (
	"net/http"
	"time"
)

// Within bounds each request for credentials by another time.
func (s *Source) Within(timeout time.Duration) *Source {
	s.timeout = timeout
	return s
}

// Transport is the transport of requests for credentials.
func (s *Source) Transport() *http.Transport { return s.client().GetTransport() }
