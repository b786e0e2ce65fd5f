import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetSocketAddress;
import java.net.ProxySelector;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;

/**
 * Java's HttpClient: asks for the URLs of standard input, eight at once, and writes each answer as a JSON line.
 *
 * <pre>java -Djavax.net.ssl.trustStore=FILE -Djavax.net.ssl.trustStorePassword=WORD JavaClient.java HOST PORT</pre>
 *
 * A URL that Java would write in another way is left out.
 */
public class JavaClient {
    private static HttpClient client;

    public static void main(String[] arguments) throws Exception {
        var proxy = new InetSocketAddress(arguments[0], Integer.parseInt(arguments[1]));
        client = HttpClient.newBuilder()
                .proxy(ProxySelector.of(proxy))
                .followRedirects(HttpClient.Redirect.NEVER)
                .connectTimeout(Duration.ofSeconds(30))
                .build();
        ExecutorService pool = Executors.newFixedThreadPool(8);
        List<Future<String>> answers = new ArrayList<>();
        var lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            URI url = parsed(line);
            if (url != null) {
                answers.add(pool.submit(() -> ask(url)));
            }
        }
        for (Future<String> answer : answers) {
            System.out.println(answer.get());
        }
        // The client's own threads would keep the process for a while.
        System.exit(0);
    }

    private static URI parsed(String line) {
        try {
            URI url = URI.create(line);
            // Java sends no name with a dot at its end in a ClientHello, and takes an IPv6 address for a name.
            boolean fit = url.getHost() != null && !url.getHost().endsWith(".") && !url.getHost().startsWith("[");
            return fit && url.toASCIIString().equals(line) ? url : null;
        } catch (IllegalArgumentException error) {
            return null;
        }
    }

    private static String ask(URI url) {
        try {
            var request = HttpRequest.newBuilder(url).timeout(Duration.ofSeconds(60)).build();
            HttpResponse<byte[]> answer = client.send(request, HttpResponse.BodyHandlers.ofByteArray());
            return line(url, answer.statusCode(), answer.headers().map(), answer.body(), "");
        } catch (IOException | InterruptedException | IllegalArgumentException error) {
            return line(url, 0, Map.of(), new byte[0], error.toString());
        }
    }

    private static String line(URI url, int status, Map<String, List<String>> headers, byte[] body, String error) {
        List<String> fields = new ArrayList<>();
        headers.forEach((name, values) -> {
            List<String> quoted = new ArrayList<>();
            values.forEach(value -> quoted.add(quoted(value)));
            fields.add(quoted(name.toLowerCase()) + ":[" + String.join(",", quoted) + "]");
        });
        return "{\"url\":" + quoted(url.toString()) + ",\"status\":" + status + ",\"headers\":{"
                + String.join(",", fields) + "},\"body\":" + quoted(Base64.getEncoder().encodeToString(body))
                + ",\"error\":" + quoted(error) + "}";
    }

    private static String quoted(String text) {
        var out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            out.append(c < ' ' || c == '"' || c == '\\' || c > '~' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return out.append('"').toString();
    }
}
