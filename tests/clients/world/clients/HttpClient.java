import java.io.*;
import java.net.URI;
import java.net.http.HttpRequest;
import java.net.http.HttpRequest.BodyPublishers;
import java.net.http.HttpResponse;
import java.net.http.HttpResponse.BodyHandlers;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;

class HttpClient {
    public static void main(String[] arguments) throws Exception {
        var client = java.net.http.HttpClient.newHttpClient();
        var in = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        var out = new PrintStream(System.out, true, "UTF-8");
        for (String line; (line = in.readLine()) != null; ) {
            var field = line.split("\t", -1);
            var body = field[5].isEmpty()
                ? BodyPublishers.noBody() : BodyPublishers.ofString(field[5]);
            var request = HttpRequest.newBuilder(URI.create(field[4])).method(field[3], body)
                .timeout(Duration.ofMillis((long) (1000 * Double.parseDouble(field[2]))));
            for (var header : Arrays.copyOfRange(field, 6, field.length)) {
                var pair = header.split(": ", 2);
                request.header(pair[0], pair[1]);
            }
            var lines = new ArrayList<CompletableFuture<String>>();
            for (int n = Integer.parseInt(field[0]); n > 0; n--) {
                var response = client.sendAsync(request.build(), BodyHandlers.ofString())
                    .handle(HttpClient::line);
                lines.add(response);
                if (field[1].isEmpty()) response.join();
            }
            lines.forEach(response -> out.println(response.join()));
        }
    }

    static String line(HttpResponse<String> response, Throwable error) {
        if (error != null) return "0\t" + error.getCause().getClass().getSimpleName();
        var text = new StringBuilder(response.statusCode() + "\t" + response.body());
        response.headers().map().forEach((name, values) ->
            values.forEach(value -> text.append("\t" + name + ": " + value)));
        return text.toString();
    }
}
