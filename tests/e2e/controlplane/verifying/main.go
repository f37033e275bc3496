// verifying judges client certificates as kube-apiserver does: what Go's TLS server asks of them in the handshake, then Verify.
//
// Each line of standard input is {"roots": [DER...], "presented": [DER...], "at": seconds}; each line of output is the error, or empty.
package main

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"
)

type question struct {
	Roots     [][]byte `json:"roots"`
	Presented [][]byte `json:"presented"`
	At        int64    `json:"at"`
}

func judge(q question) error {
	roots, intermediates := x509.NewCertPool(), x509.NewCertPool()
	for _, der := range q.Roots {
		root, err := x509.ParseCertificate(der)
		if err != nil {
			return fmt.Errorf("root: %w", err)
		}
		roots.AddCert(root)
	}
	presented := make([]*x509.Certificate, len(q.Presented))
	for i, der := range q.Presented {
		certificate, err := x509.ParseCertificate(der)
		if err != nil {
			return err
		}
		if key, ok := certificate.PublicKey.(*rsa.PublicKey); ok && key.N.BitLen() > 8192 {
			return fmt.Errorf("RSA key of %d bits", key.N.BitLen())
		}
		presented[i] = certificate
		if i > 0 {
			intermediates.AddCert(certificate)
		}
	}
	switch presented[0].PublicKey.(type) {
	case *ecdsa.PublicKey, *rsa.PublicKey, ed25519.PublicKey:
	default:
		return fmt.Errorf("unsupported public key of type %T", presented[0].PublicKey)
	}
	_, err := presented[0].Verify(x509.VerifyOptions{
		Roots:         roots,
		Intermediates: intermediates,
		CurrentTime:   time.Unix(q.At, 0),
		KeyUsages:     []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	return err
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var q question
		if err := json.Unmarshal(lines.Bytes(), &q); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		said := ""
		if err := judge(q); err != nil {
			said = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		fmt.Println(said)
	}
}
