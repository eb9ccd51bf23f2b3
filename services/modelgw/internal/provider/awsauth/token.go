package awsauth

import (
	"context"
	"encoding/base64"
	"net/http"
	"strconv"
	"strings"
	"time"

	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"

	"github.com/evalfleet/evalfleet/pkg/config"
	"github.com/evalfleet/evalfleet/services/modelgw/internal/provider/accesstoken"
)

// A short-lived key of Bedrock is a signed address, encoded, as AWS's own generator makes it:
// https://github.com/aws/aws-bedrock-token-generator-python.
const (
	tokenAddress = "https://bedrock.amazonaws.com/?Action=CallWithBearerToken" //nolint:gosec // The address is no credential.
	tokenPrefix  = "bedrock-api-key-"                                          //nolint:gosec // It precedes every key.
	tokenVersion = "&Version=1"
	// tokenLife is the greatest life; the credentials' own may be shorter.
	tokenLife = 12 * time.Hour
	// emptyHash is the hash of no body.
	emptyHash = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
)

// NewTokens returns short-lived keys of Bedrock, which credentials of AWS make without a request, for a region. Its
// errors are those of the credentials. Credentials are read anew for each key, so that a refused key is replaced by one
// of newer credentials.
func NewTokens(source *Source, service, region string) *accesstoken.Source {
	return accesstoken.New(func(ctx context.Context) (accesstoken.Token, error) {
		source.Forget()
		got, err := source.retrieve(ctx)
		if err != nil {
			return accesstoken.Token{}, err
		}
		now := time.Now()
		ends := now.Add(tokenLife)
		if got.CanExpire && got.Expires.Before(ends) {
			ends = got.Expires
		}
		post, err := http.NewRequestWithContext(ctx, http.MethodPost, tokenAddress+"&X-Amz-Expires="+strconv.Itoa(int(tokenLife.Seconds())), nil)
		if err != nil {
			return accesstoken.Token{}, err
		}
		signed, _, err := v4.NewSigner().PresignHTTP(ctx, got, post, emptyHash, service, region, now)
		if err != nil {
			return accesstoken.Token{}, err
		}
		encoded := base64.StdEncoding.EncodeToString([]byte(strings.TrimPrefix(signed, "https://") + tokenVersion))
		return accesstoken.Token{Value: config.NewSecret(tokenPrefix + encoded), Expires: ends}, nil
	})
}
