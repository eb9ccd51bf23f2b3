package provider

import (
	"cmp"
	"net/http"
	"net/url"
	"strings"
)

// Send makes a request as c.Do does, but follows no redirect: for one, Do copies the headers of each request. Only the
// transport of c is used, which must be set. A user in the address is added to r's header.
func Send(c *http.Client, r *http.Request) (*http.Response, error) {
	if user := r.URL.User; user != nil && r.Header.Get("Authorization") == "" {
		password, _ := user.Password()
		r.SetBasicAuth(user.Username(), password)
	}
	answer, err := c.Transport.RoundTrip(r)
	if err != nil {
		return nil, &url.Error{Op: r.Method, URL: r.URL.Redacted(), Err: err}
	}
	return answer, nil
}

// Port is the port of a URL: its own, else that of its scheme; empty for a scheme other than http and https.
func Port(u *url.URL) string {
	return cmp.Or(u.Port(), map[string]string{"http": "80", "https": "443"}[u.Scheme])
}

// MediaType is the type of an answer's body, in lower case and without parameters.
func MediaType(h http.Header) string {
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	return strings.ToLower(strings.TrimSpace(kind))
}
