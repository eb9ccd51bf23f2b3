package config

import "log/slog"

// Secret is a text that must not be seen. It prints as stars everywhere; only Reveal gives it.
type Secret struct{ value string }

const stars = "*****"

// NewSecret keeps value out of sight.
func NewSecret(value string) Secret { return Secret{value: value} }

// Reveal returns the secret. Its result must not be kept, logged or put into an error.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether the secret is empty.
func (s Secret) IsZero() bool { return s.value == "" }

// String returns stars, or an empty text for an empty secret.
func (s Secret) String() string {
	if s.value == "" {
		return ""
	}
	return stars
}

// GoString returns stars.
func (s Secret) GoString() string { return s.String() }

// LogValue returns stars.
func (s Secret) LogValue() slog.Value { return slog.StringValue(s.String()) }

// MarshalText returns stars.
func (s Secret) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText takes the secret.
func (s *Secret) UnmarshalText(b []byte) error {
	s.value = string(b)
	return nil
}
