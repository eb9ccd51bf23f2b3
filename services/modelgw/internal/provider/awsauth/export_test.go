package awsauth

import "time"

// Within bounds each request for credentials by another time.
func (s *Source) Within(timeout time.Duration) *Source {
	s.timeout = timeout
	return s
}
