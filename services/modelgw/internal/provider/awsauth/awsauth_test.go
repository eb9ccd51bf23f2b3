package awsauth_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/evalfleet/evalfleet/pkg/config"
	errorsv1 "github.com/evalfleet/evalfleet/pkg/gen/evalfleet/errors/v1"
	"github.com/evalfleet/evalfleet/pkg/rpcerr"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/awsauth"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/transport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	keyID   = "AKIAIOSFODNN7EXAMPLE"
	secret  = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
	session = "session-token-of-the-account"
)

// clean empties what AWS's default chain reads, and returns the folder of shared files.
func clean(t *testing.T) string {
	t.Helper()
	for _, name := range []string{
		"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ROLE_ARN",
		"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI",
	} {
		t.Setenv(name, "")
	}
	dir := t.TempDir()
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	t.Setenv("AWS_CONFIG_FILE", filepath.Join(dir, "config"))
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", filepath.Join(dir, "credentials"))
	return dir
}

func write(t *testing.T, dir, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
}

func keys() awsauth.Account {
	return awsauth.Account{AccessKeyID: config.NewSecret(keyID), SecretAccessKey: config.NewSecret(secret), SessionToken: config.NewSecret(session), Region: "us-east-1"}
}

// signer is the signer of an account for a service.
func signer(t *testing.T, account awsauth.Account) *awsauth.Signer {
	t.Helper()
	client := transport.NewClient()
	t.Cleanup(client.CloseIdleConnections)
	return awsauth.NewSigner(awsauth.NewSource(awsauth.Owner{Provider: "p", Account: "a", Hint: "set the key"}, account, client), "bedrock")
}

// server records the headers of requests, and answers with what it is given.
func server(t *testing.T, status int, body string) (address string, seen func() http.Header) {
	t.Helper()
	var last http.Header
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		last = r.Header
		_, _ = io.Copy(io.Discard, r.Body)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	return s.URL, func() http.Header { return last }
}

func post(t *testing.T, c awsauth.Client, address string) string {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, address, strings.NewReader("{}"))
	require.NoError(t, err)
	answer, err := c.HTTP.Do(r)
	require.NoError(t, err)
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	assert.Empty(t, r.Header, "the request of the caller is not changed")
	return string(body)
}

func TestAKeySignsRequests(t *testing.T) {
	t.Parallel()
	address, seen := server(t, 403, "your token "+session+" of "+keyID+" with "+secret)
	s := signer(t, keys())
	c, err := s.Client(t.Context(), "")
	require.NoError(t, err)
	said := post(t, c, address)
	assert.Regexp(t, `^AWS4-HMAC-SHA256 Credential=AKIAIOSFODNN7EXAMPLE/\d{8}/us-east-1/bedrock/aws4_request, SignedHeaders=.*, Signature=[0-9a-f]{64}$`, seen().Get("Authorization"))
	assert.Equal(t, session, seen().Get("X-Amz-Security-Token"))
	for _, part := range []string{keyID, secret, session} {
		assert.NotContains(t, said, part, "what AWS repeats of the credentials is redacted")
	}
	again, err := s.Client(t.Context(), "")
	require.NoError(t, err)
	assert.Same(t, c.HTTP, again.HTTP, "a client is used as long as the credentials are the same")
	other, err := s.Client(t.Context(), "eu-west-1")
	require.NoError(t, err)
	post(t, other, address)
	assert.Contains(t, seen().Get("Authorization"), "/eu-west-1/bedrock/")
}

func TestAProfileHasKeysAndARegion(t *testing.T) {
	dir := clean(t)
	write(t, dir, "config", "[profile work]\nregion = eu-north-1\n")
	write(t, dir, "credentials", "[work]\naws_access_key_id = "+keyID+"\naws_secret_access_key = "+secret+"\n")
	address, seen := server(t, 200, "{}")
	s := signer(t, awsauth.Account{Profile: "work"})
	c, err := s.Client(t.Context(), "")
	require.NoError(t, err)
	assert.Equal(t, "eu-north-1", c.Region)
	post(t, c, address)
	assert.Contains(t, seen().Get("Authorization"), keyID+"/")

	write(t, dir, "credentials", "[work]\naws_access_key_id = AKIANEWNEWNEWNEWNEW1\naws_secret_access_key = "+secret+"\n")
	s.Forget()
	c, err = s.Client(t.Context(), "")
	require.NoError(t, err)
	post(t, c, address)
	assert.Contains(t, seen().Get("Authorization"), "AKIANEWNEWNEWNEWNEW1/", "newer keys are read after the old ones were refused")
}

func TestAKeyGoesBeforeAProfileWhichStillHasTheRegion(t *testing.T) {
	dir := clean(t)
	write(t, dir, "config", "[default]\nregion = us-east-1\n[profile work]\nregion = eu-north-1\n")
	write(t, dir, "credentials", "[work]\naws_access_key_id = AKIAWORKWORKWORKWORK\naws_secret_access_key = "+secret+"\n")
	address, seen := server(t, 200, "{}")
	account := keys()
	account.Region, account.Profile = "", "work"
	c, err := signer(t, account).Client(t.Context(), "")
	require.NoError(t, err)
	post(t, c, address)
	assert.Contains(t, seen().Get("Authorization"), keyID+"/")
	assert.Equal(t, "eu-north-1", c.Region)
}

// The variables of AWS are the account default's: one of theirs has no part in an account that names a profile.
func TestAProfileGoesBeforeTheVariables(t *testing.T) {
	dir := clean(t)
	write(t, dir, "config", "[profile work]\nregion = eu-north-1\n[profile bare]\n")
	write(t, dir, "credentials", "[work]\naws_access_key_id = "+keyID+"\naws_secret_access_key = "+secret+"\n[bare]\naws_access_key_id = "+keyID+"\naws_secret_access_key = "+secret+"\n")
	t.Setenv("AWS_REGION", "us-west-2")
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIAOTHEROTHEROTHER1")
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	address, seen := server(t, 200, "{}")
	for profile, region := range map[string]string{"work": "eu-north-1", "bare": "us-west-2"} {
		c, err := signer(t, awsauth.Account{Profile: profile}).Client(t.Context(), "")
		require.NoError(t, err)
		assert.Equal(t, region, c.Region, profile)
		post(t, c, address)
		assert.Contains(t, seen().Get("Authorization"), keyID+"/", profile)
	}
}

func TestTheDefaultChainIsAskedWhereThereIsNoKey(t *testing.T) {
	clean(t)
	t.Setenv("AWS_ACCESS_KEY_ID", keyID)
	t.Setenv("AWS_SECRET_ACCESS_KEY", secret)
	address, seen := server(t, 200, "{}")
	c, err := signer(t, awsauth.Account{Region: "us-west-2"}).Client(t.Context(), "")
	require.NoError(t, err)
	post(t, c, address)
	assert.Contains(t, seen().Get("Authorization"), keyID+"/")
}

// sts serves AWS's service of roles.
func sts(t *testing.T, status int, body string) func() string {
	t.Helper()
	var asked string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body2, _ := io.ReadAll(r.Body)
		asked = string(body2)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(s.Close)
	t.Setenv("AWS_ENDPOINT_URL_STS", s.URL)
	return func() string { return asked }
}

func role() awsauth.Account {
	a := keys()
	a.RoleARN, a.ExternalID = "arn:aws:iam::123456789012:role/reader", "outside"
	return a
}

func TestARoleIsAssumed(t *testing.T) {
	clean(t)
	asked := sts(t, 200, `<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult><Credentials><AccessKeyId>ASIAROLEROLEROLEROLE</AccessKeyId>`+
		`<SecretAccessKey>role-secret-of-the-role</SecretAccessKey><SessionToken>role-session</SessionToken><Expiration>2999-01-01T00:00:00Z</Expiration></Credentials></AssumeRoleResult></AssumeRoleResponse>`)
	address, seen := server(t, 200, "{}")
	s := signer(t, role())
	assert.Empty(t, asked(), "nothing is asked before it is needed")
	c, err := s.Client(t.Context(), "")
	require.NoError(t, err)
	post(t, c, address)
	assert.Contains(t, seen().Get("Authorization"), "ASIAROLEROLEROLEROLE/")
	assert.Contains(t, asked(), "ExternalId=outside")
}

// What is wrong with the credentials is said with what to do, and without any of them.
func TestCredentialsThatAreNotThere(t *testing.T) {
	dir := clean(t)
	const notConfigured = errorsv1.ErrorReason_ERROR_REASON_PROVIDER_NOT_CONFIGURED
	refused := `<ErrorResponse><Error><Type>Sender</Type><Code>AccessDenied</Code><Message>not with ` + session + `</Message></Error></ErrorResponse>`
	for name, tt := range map[string]struct {
		account awsauth.Account
		prepare func()
		says    string
		later   bool
	}{
		"nothing anywhere":   {awsauth.Account{Region: "us-east-1"}, func() {}, "gets no credentials from AWS's default chain: set the key", false},
		"an unknown profile": {awsauth.Account{Profile: "nowhere"}, func() {}, `has the profile "nowhere"`, false},
		"a profile with no region": {awsauth.Account{Profile: "bare"}, func() {
			write(t, dir, "credentials", "[bare]\naws_access_key_id = "+keyID+"\naws_secret_access_key = "+secret+"\n")
		}, "has no region", false},
		"a profile whose region is none": {awsauth.Account{Profile: "odd"}, func() { write(t, dir, "config", "[profile odd]\nregion = evil.example/\n") }, "has no region", false},
		"a role that is refused":         {role(), func() { sts(t, 403, refused) }, "STS AssumeRole: AccessDenied", false},
		"a service that is down":         {role(), func() { sts(t, 503, "busy") }, "cannot be fetched now", true},
		"a service that is not there":    {role(), func() { t.Setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1") }, "cannot be reached", true},
	} {
		tt.prepare()
		_, err := signer(t, tt.account).Client(t.Context(), "")
		require.Error(t, err, name)
		assert.ErrorContains(t, err, tt.says, name)
		assert.Equal(t, !tt.later, rpcerr.Is(err, notConfigured), name)
		assert.Equal(t, tt.later, provider.ClassOfError(err) == provider.Transient, name)
		for _, part := range []string{keyID, secret, session} {
			assert.NotContains(t, err.Error(), part, name)
		}
	}
}

func TestCredentialsAreNotAwaitedLongerThanTheCall(t *testing.T) {
	clean(t)
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(s.Close)
	defer close(release)
	t.Setenv("AWS_ENDPOINT_URL_STS", s.URL)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := signer(t, role()).Client(ctx, "")
	require.ErrorIs(t, err, context.Canceled)
}

// A service that does not answer holds up the calls of the account for a time, and not until the process ends.
func TestAServiceOfCredentialsThatDoesNotAnswer(t *testing.T) {
	clean(t)
	release := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	t.Cleanup(s.Close)
	defer close(release)
	t.Setenv("AWS_ENDPOINT_URL_STS", s.URL)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute) // only if it is held up
	defer cancel()
	source := awsauth.NewSource(awsauth.Owner{Provider: "p", Account: "a", Hint: "set the key"}, role(), http.DefaultClient).Within(time.Millisecond)
	_, err := awsauth.NewSigner(source, "bedrock").Client(ctx, "")
	require.ErrorContains(t, err, "STS AssumeRole cannot be reached")
	assert.Equal(t, provider.Transient, provider.ClassOfError(err))
}

func TestAnAccountIsChecked(t *testing.T) {
	t.Parallel()
	for says, account := range map[string]awsauth.Account{
		"belong together": {AccessKeyID: config.NewSecret("x")},
		"region must be":  {Region: "evil.example/"},
		"":                keys(),
	} {
		err := account.Check()
		if says == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, says)
		}
	}
	own := awsauth.Default{DefaultRegion: "us-west-2"}
	assert.Equal(t, "us-west-2", own.Account().Region)
	own.Region = "eu-west-1"
	assert.Equal(t, "eu-west-1", own.Account().Region)
}

// The credentials of a machine and of a container come from addresses of their own, in clear: no proxy gets to read
// them.
func TestCredentialsOfAMachinePassNoProxy(t *testing.T) {
	t.Setenv("HTTP_PROXY", "http://proxy.example:3128")
	t.Setenv("NO_PROXY", "")
	passed := awsauth.NewSource(awsauth.Owner{}, awsauth.Account{}, nil).Transport().Proxy
	for address, want := range map[string]bool{"http://169.254.169.254/latest": false, "http://169.254.170.2/v2": false, "http://[fd00:ec2::254]/latest": false, "http://sts.example/": true} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, address, nil)
		require.NoError(t, err)
		proxy, err := passed(r)
		require.NoError(t, err)
		assert.Equal(t, want, proxy != nil, address)
	}
}
